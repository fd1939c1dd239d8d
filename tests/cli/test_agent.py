"""`hlas model` and `hlas agent` on the command line."""

import asyncio
import io
import re
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from hlas import cli
from hlas.agent import agent_settings
from hlas.agent.providers import models
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants
from model_scripts import Refuse, Say, Usage
from processes import environment
from scripted_model import ScriptedModel

KEY = "sk-provider-0123456789abcdef"
SECRETS_KEY = "a key for tests that is long enough"
LOCAL = ("model", "add", "local", "--base-url", "http://127.0.0.1:11434/v1", "--model", "llama3")
GPT = ("model", "add", "gpt", "--base-url", "https://api.example.com/v1", "--model", "gpt-9")


@dataclass
class Inside:
    """Commands in this process, because starting one costs more than most commands."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr("sys.argv", ["hlas", *arguments])
        self.capsys.readouterr()
        # A command runs an event loop of its own.
        code = await asyncio.to_thread(_main)
        stdout, stderr = self.capsys.readouterr()
        if isinstance(code, str):
            return 1, stdout, f"{stderr}{code}\n"
        return code, stdout, stderr


def _main() -> int | str:
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


@pytest.fixture
def inside(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Inside:
    monkeypatch.chdir(tmp_path)
    for name, value in environment(database_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SECRETS_KEY", SECRETS_KEY)
    return Inside(monkeypatch, capsys)


async def test_models(inside: Inside, operators: Database, tmp_path: Path) -> None:
    """Add with a key from a file, list, change, remove; no output has the key."""
    (tmp_path / "key").write_text(f"{KEY}\n")
    outputs = [await inside.run(*GPT, "--key-file", "key", "--price", "2.50", "10", "--json")]
    assert orjson.loads(outputs[0][1])["input_price"] == "2.5"
    assert (await models.find(operators, Vault(SECRETS_KEY), "gpt")).key == KEY
    outputs.append(await inside.run(*LOCAL, "--free"))
    assert (outputs[-1][0], outputs[-1][1].splitlines()) == (
        0,
        [
            "Added local: free.",
            "  test      hlas model test local",
            "  use       hlas agent set --tenant S --model local",
        ],
    )
    outputs.append(await inside.run("model", "list"))
    assert [line.split()[0] for line in outputs[-1][1].splitlines()] == ["NAME", "gpt", "local"]
    outputs.append(await inside.run("model", "list", "--json"))
    assert [one["has_key"] for one in orjson.loads(outputs[-1][1])] == [True, False]
    outputs.append(await inside.run("model", "set", "gpt", "--price", "3", "12"))
    assert outputs[-1][:2] == (0, "Changed gpt: 3 in, 12 out USD/M.\n")
    refused = await inside.run("model", "set", "local", "--base-url", "https://api.example.com/v1")
    assert (refused[0], "the price of " in refused[2], "--free" in refused[2]) == (1, True, True)
    outputs.append(await inside.run("model", "set", "gpt", "--no-key"))
    assert (await models.find(operators, Vault(SECRETS_KEY), "gpt")).key == ""
    outputs.append(await inside.run("model", "remove", "gpt"))
    assert outputs[-1][:2] == (0, "Removed gpt.\n")
    outputs.append(await inside.run("audit", "--json"))
    assert not [output for output in outputs if KEY in str(output)]
    assert {code for code, _, _ in outputs} == {0}


async def test_a_key_from_standard_input(inside: Inside, operators: Database) -> None:
    """`--key-file -` reads the key; there is no option that takes it as an argument."""
    inside.monkeypatch.setattr("sys.stdin", io.StringIO(KEY + "\n"))
    code, _, err = await inside.run(*GPT, "--key-file", "-", "--free")
    assert code == 0, err
    assert (await models.find(operators, Vault(SECRETS_KEY), "gpt")).key == KEY
    code, out, err = await inside.run(*LOCAL, "--free", "--key", KEY)
    assert (code, out) == (2, "")
    assert "no such option: --key" in err


async def test_mistakes(inside: Inside, operators: Database, tmp_path: Path) -> None:
    """Each mistake is one clear line, and stores nothing."""
    await tenants.add(operators, "Shop", "shop", [])
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "long").write_text("x" * 8001)
    (tmp_path / "binary").write_bytes(b"\xff")
    shop = ("agent", "set", "--tenant", "shop")
    for arguments, said in (
        (LOCAL, "the price of llama3 is not known; give --price IN OUT"),
        ((*LOCAL, "--free", "--price", "1", "2"), "Give a price or declare the model free"),
        ((*LOCAL, "--price", "1", "lots"), "output price: Write dollars from 0 to 10000"),
        ((*LOCAL, "--price", "1", "0.0000001"), "at most 6 decimals"),
        ((*LOCAL, "--free", "--key-file", "missing"), "missing cannot be read: No such file"),
        ((*LOCAL, "--free", "--key-file", "empty"), "key: A key is 1 to 4096"),
        ((*LOCAL, "--free", "--key-file", "binary"), "binary cannot be read: it is not text"),
        (("model", "add", "NO", *LOCAL[3:], "--free"), "name: A model's name is"),
        ((*LOCAL[:4], "https://a:b@c", *LOCAL[5:], "--free"), "base url: Write an address such"),
        (("model", "set", "no-such", "--free"), "there is no model 'no-such'"),
        (("model", "set", "no-such"), "nothing to change"),
        (("model", "remove", "no-such"), "there is no model 'no-such'"),
        (("model", "test", "no-such"), "there is no model 'no-such'"),
        ((*shop,), "nothing to change"),
        ((*shop, "--model", "no-such"), "there is no model 'no-such'"),
        ((*shop, "--model", "a", "--no-model"), "not both"),
        ((*shop, "--max-steps", "6"), "max steps: write 1 to 5"),
        ((*shop, "--tools", "hand_over,rm"), "tools: A tool is search_knowledge"),
        ((*shop, "--link-host", "https://a.example"), "link hosts: Write a host such as"),
        ((*shop, "--instructions-file", "long"), "at most 8000 characters"),
        ((*shop, "--instructions-file", "binary"), "binary is not UTF-8 text"),
        ((*shop, "--cap-day", "lots"), "cap day: write US dollars"),
        (("agent", "show", "--tenant", "no-such"), "there is no tenant 'no-such'"),
        (("agent", "set", "--tenant", "no-such", "--no-model"), "there is no tenant 'no-such'"),
    ):
        code, out, err = await inside.run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), (arguments, err)
        assert err.startswith("hlas: "), arguments
        assert said in err, arguments
    inside.monkeypatch.setenv("SECRETS_KEY", "")
    code, out, err = await inside.run(*GPT, "--free", "--key-file", "key")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("hlas: SECRETS_KEY: it must be set")
    assert await operators.all("select 1 from models union all select 1 from agent_settings") == []


async def test_a_wrong_secrets_key(inside: Inside, tmp_path: Path) -> None:
    """A provider's key that cannot be opened is one clear line that names the setting."""
    (tmp_path / "key").write_text(KEY)
    assert (await inside.run(*GPT, "--free", "--key-file", "key"))[0] == 0
    inside.monkeypatch.setenv("SECRETS_KEY", "another key for tests that is long enough")
    code, out, err = await inside.run("model", "test", "gpt")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(
        "hlas: SECRETS_KEY is not the key this secret was encrypted with. Restore"
    )
    assert KEY not in err


async def test_settings(inside: Inside, operators: Database, tmp_path: Path) -> None:
    """Everything of a tenant's agent is set and shown; what is not given stays."""
    shop = await tenants.add(operators, "Shop", "shop", [])
    (tmp_path / "said.txt").write_text("Buďte struční.\n")
    for name in ("a", "b"):
        assert (await inside.run("model", "add", name, *LOCAL[3:], "--free"))[0] == 0
    code, out, err = await inside.run(
        *("agent", "set", "--tenant", "shop", "--model", "b", "--model", "a"),
        *("--instructions-file", "said.txt", "--max-steps", "2", "--tools", "hand_over, crm__*"),
        *("--acting", "crm__book", "--link-host", "a.example", "--link-host", "*.b.example"),
        *("--debug", "--cap-day", "1.50", "--cap-month", "off", "--json"),
    )
    assert code == 0, err
    shown = orjson.loads(out)
    assert shown == {
        "tenant": "shop",
        "models": ["b", "a"],
        "instructions": "Buďte struční.",
        "tools": ["hand_over", "crm__*"],
        "acting_tools": ["crm__book"],
        "link_hosts": ["a.example", "*.b.example"],
        "max_steps": 2,
        "is_debug": True,
        "cap_day": "1.5",
        "cap_month": None,
        "cap_conversation": "0.5",
    }
    assert (
        orjson.loads((await inside.run("agent", "show", "--tenant", "shop", "--json"))[1]) == shown
    )
    code, out, _ = await inside.run(
        "agent", "set", "--tenant", "shop", "--no-debug", "--max-steps", "default"
    )
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines == [
        "models            b, a",
        "tools             hand_over, crm__*",
        "to confirm        crm__book",
        "link hosts        a.example, *.b.example",
        "max steps         default",
        "debug             off",
        "cap day           1.5 USD",
        "cap month         off",
        "cap conversation  0.5 USD",
        "instructions",
        "",
        "Buďte struční.",
    ]
    used = await inside.run("model", "remove", "a")
    assert used == (
        1,
        "",
        "hlas: a is used by shop; choose another model there first\n",
    )
    assert (await inside.run("agent", "set", "--tenant", "shop", "--no-model", "--no-link-host"))[
        0
    ] == 0
    settings = await agent_settings.read(operators, shop.id)
    assert (settings.models, settings.link_hosts) == ((), ())
    assert (settings.is_debug, settings.max_steps) == (False, None)
    assert (await inside.run("model", "remove", "a"))[0] == 0


async def test_a_model_is_tried(inside: Inside, tmp_path: Path) -> None:
    """One small request; the output has times, tokens and cost, or what is wrong in one line."""
    (tmp_path / "key").write_text(KEY)
    async with ScriptedModel(lambda _: [Say("yes"), Usage("9/1")]) as provider:
        options = ("--base-url", provider.url, "--model", "tiny", "--key-file", "key")
        await inside.run("model", "add", "gpt", *options, "--price", "1", "2")
        code, out, err = await inside.run("model", "test", "gpt")
        assert code == 0, err
        assert re.fullmatch(
            r"gpt works: first token after \d+ ms, all after \d+ ms; "
            r"9 tokens in, 1 out, 0\.000011 USD\.\n",
            out,
        )
        done = orjson.loads((await inside.run("model", "test", "gpt", "--json"))[1])
        assert (done["input_tokens"], done["output_tokens"], done["cost"]) == (9, 1, 11_000)
        assert len(provider.requests) == 2
        provider.script = lambda _: [Refuse(401)]
        assert await inside.run("model", "test", "gpt") == (
            1,
            "",
            "hlas: gpt does not work: the provider does not accept the key (401)\n",
        )
        assert len(provider.requests) == 3
