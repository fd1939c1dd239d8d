"""`hlas model` and `hlas agent` on the command line."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from hlas.agent import agent_settings, models
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants
from processes import COMMAND, hlas

KEY = "sk-provider-0123456789abcdef"
SECRETS_KEY = "a key for tests that is long enough"
Run = Callable[..., tuple[int, str, str]]
LOCAL = ("model", "add", "local", "--base-url", "http://127.0.0.1:11434/v1", "--model", "llama3")
GPT = ("model", "add", "gpt", "--base-url", "https://api.example.com/v1", "--model", "gpt-9")


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Run:
    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        given = {
            "DATABASE_URL": database_url,
            "WIDGET_SESSION_JWT_SECRET": "a secret for tests that is long enough",
            "SECRETS_KEY": SECRETS_KEY,
            **variables,
        }
        done = hlas(*arguments, cwd=tmp_path, **given)
        return done.returncode, done.stdout, done.stderr

    return run


async def test_models(run: Run, operators: Database, tmp_path: Path) -> None:
    """Add with a key from a file, list, change, remove; no output has the key."""
    (tmp_path / "key").write_text(f"{KEY}\n")
    outputs = [run(*GPT, "--key-file", "key", "--price", "2.50", "10", "--json")]
    assert orjson.loads(outputs[0][1])["input_price"] == "2.5"
    assert (await models.find(operators, Vault(SECRETS_KEY), "gpt")).key == KEY
    outputs.append(run(*LOCAL, "--free"))
    assert (outputs[-1][0], outputs[-1][1].splitlines()) == (
        0,
        [
            "Added local: free.",
            "  test      hlas model test local",
            "  use       hlas agent set --tenant S --model local",
        ],
    )
    outputs.append(run("model", "list"))
    assert [line.split()[0] for line in outputs[-1][1].splitlines()] == ["NAME", "gpt", "local"]
    outputs.append(run("model", "list", "--json"))
    assert [one["has_key"] for one in orjson.loads(outputs[-1][1])] == [True, False]
    outputs.append(run("model", "set", "gpt", "--price", "3", "12"))
    assert outputs[-1][:2] == (0, "Changed gpt: 3 in, 12 out USD/M.\n")
    outputs.append(run("model", "set", "gpt", "--no-key"))
    assert (await models.find(operators, Vault(SECRETS_KEY), "gpt")).key == ""
    outputs.append(run("model", "remove", "gpt"))
    assert outputs[-1][:2] == (0, "Removed gpt.\n")
    outputs.append(run("audit", "--json"))
    assert not [output for output in outputs if KEY in str(output)]
    assert {code for code, _, _ in outputs} == {0}


async def test_a_key_from_standard_input(
    run: Run, operators: Database, database_url: str, tmp_path: Path
) -> None:
    """`--key-file -` reads the key; there is no option that takes it as an argument."""
    done = subprocess.run(
        [COMMAND, *GPT, "--key-file", "-", "--free"],
        cwd=tmp_path,
        env={"DATABASE_URL": database_url, "SECRETS_KEY": SECRETS_KEY}
        | {"WIDGET_SESSION_JWT_SECRET": "a secret for tests that is long enough"},
        input=KEY + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (await models.find(operators, Vault(SECRETS_KEY), "gpt")).key == KEY
    code, out, err = run(*LOCAL, "--free", "--key", KEY)
    assert (code, out) == (2, "")
    assert "no such option: --key" in err


async def test_mistakes(run: Run, operators: Database, tmp_path: Path) -> None:
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
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), (arguments, err)
        assert err.startswith("hlas: "), arguments
        assert said in err, arguments
    code, out, err = run(*GPT, "--free", "--key-file", "key", SECRETS_KEY="")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("hlas: SECRETS_KEY: it must be set")
    assert await operators.all("select 1 from models union all select 1 from agent_settings") == []


async def test_a_wrong_secrets_key(run: Run, tmp_path: Path) -> None:
    """A provider's key that cannot be opened is one clear line that names the setting."""
    (tmp_path / "key").write_text(KEY)
    assert run(*GPT, "--free", "--key-file", "key")[0] == 0
    other = "another key for tests that is long enough"
    code, out, err = run("model", "test", "gpt", SECRETS_KEY=other)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("hlas: SECRETS_KEY: it is not the one that this secret was stored with")
    assert KEY not in err


async def test_settings(run: Run, operators: Database, tmp_path: Path) -> None:
    """Everything of a tenant's agent is set and shown; what is not given stays."""
    shop = await tenants.add(operators, "Shop", "shop", [])
    (tmp_path / "said.txt").write_text("Buďte struční.\n")
    for name in ("a", "b"):
        assert run("model", "add", name, *LOCAL[3:], "--free")[0] == 0
    code, out, err = run(
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
    assert orjson.loads(run("agent", "show", "--tenant", "shop", "--json")[1]) == shown
    code, out, _ = run("agent", "set", "--tenant", "shop", "--no-debug", "--max-steps", "default")
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
    used = run("model", "remove", "a")
    assert used == (
        1,
        "",
        "hlas: a is used by shop; choose another model there first\n",
    )
    assert run("agent", "set", "--tenant", "shop", "--no-model", "--no-link-host")[0] == 0
    settings = await agent_settings.read(operators, shop.id)
    assert (settings.models, settings.link_hosts) == ((), ())
    assert (settings.is_debug, settings.max_steps) == (False, None)
    assert run("model", "remove", "a")[0] == 0
