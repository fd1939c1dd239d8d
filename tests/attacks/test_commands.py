"""Attacks on operators: secrets in the output of commands, texts that control a terminal."""

import stat
from pathlib import Path

import orjson
import pytest

from hlas import settings
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.operators import administrators
from hlas.store.db import Database
from hlas.tenants import tenants
from hlas.tenants.audit import Change
from hlas.visitors.keys import FileKeys
from processes import environment, hlas

PASSWORD = "swordfish"
# Passwords that are not encoded, and other common mistakes in an address.
ADDRESSES = {
    "number sign": "{scheme}://hlas:swordfish#1@127.0.0.1/hlas",
    "number sign in the middle": "{scheme}://hlas:sword#swordfish@127.0.0.1/hlas",
    "slash": "{scheme}://hlas:swordfish/1@127.0.0.1/hlas",
    "question mark": "{scheme}://hlas:swordfish?1@127.0.0.1/hlas",
    "question mark at the end": "{scheme}://hlas:swordfish?@127.0.0.1/hlas",
    "bracket": "{scheme}://hlas:[swordfish@127.0.0.1/hlas",
    "brackets": "{scheme}://hlas:[swordfish]@127.0.0.1:port/hlas",
    "port is a word": "{scheme}://hlas:swordfish@127.0.0.1:swordfish/hlas",
    "port is too large": "{scheme}://hlas:swordfish@127.0.0.1:99999/hlas",
    "port is signed": "{scheme}://hlas:swordfish@127.0.0.1:-1/hlas",
    "no host, a port": "{scheme}://hlas:swordfish@:port/hlas",
    "line break": "{scheme}://hlas:swordfish\n#@127.0.0.1/hlas",
    "no scheme": "hlas:swordfish@127.0.0.1/hlas",
    "another scheme": "mysql://hlas:swordfish@127.0.0.1/hlas",
    "upper case": "MYSQL://hlas:swordfish@127.0.0.1/hlas",
    "one slash": "{scheme}:/hlas:swordfish@127.0.0.1/hlas",
}
VARIABLES = {
    "DATABASE_URL": "postgresql",
    "REDIS_URL": "redis",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "https",
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
@pytest.mark.parametrize("name", VARIABLES)
def test_addresses(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Edge case 31: one line that names the variable, and nothing of its value."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, address.format(scheme=VARIABLES[name]))
    with pytest.raises(settings.ConfigurationError) as raised:
        settings.load()
    line = str(raised.value)
    assert line.startswith(f"{name}: ")
    assert PASSWORD not in line
    assert "\n" not in line


GOOD_ADDRESSES = (
    "postgresql:///hlas?host=/run/postgresql",
    "postgresql://hlas:sword%23fish@db:5432/hlas?sslmode=require",
    "postgres://hlas:p@ss@db/hlas",
    "postgresql://hlas@db1:5432,db2:5433/hlas?target_session_attrs=read-write",
    "postgresql://[2001:db8::1]:5432/hlas",
    "postgresql://hlas:x%fish@db/hlas",
)


@pytest.mark.parametrize("address", GOOD_ADDRESSES)
def test_good_addresses(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Addresses that the libraries can parse are accepted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", address)
    assert settings.load().database_url == address


def test_no_command_prints_a_password(tmp_path: Path) -> None:
    """The same on the command line: one line, no traceback."""
    address = ADDRESSES["number sign"].format(scheme="postgresql")
    for arguments in (("migrate",), ("tenant", "list"), ("doctor",), ("backup", "x.tar")):
        done = hlas(*arguments, cwd=tmp_path, **environment(address))
        said = done.stdout + done.stderr
        assert done.returncode != 0
        assert PASSWORD not in said
        assert "Traceback" not in said
        assert "DATABASE_URL: cannot be read" in said


def test_environment_file(tmp_path: Path) -> None:
    """A line break in a value of .env adds no second setting, and the error does not quote it."""
    (tmp_path / ".env").write_text(
        'LOG_LEVEL="loud\nDATABASE_URL=postgresql://hlas:swordfish@127.0.0.1:1/hlas"\n'
    )
    done = hlas("tenant", "list", cwd=tmp_path, **environment())
    assert done.returncode == 1
    assert done.stderr.startswith("hlas: LOG_LEVEL: ")
    assert done.stderr.count("\n") == 1
    assert PASSWORD not in done.stderr


def test_secrets_are_kept_from_others(tmp_path: Path) -> None:
    """Through a link, in a shared directory, over a planted link: the file is new, ours, 0600."""
    real, link, victim = tmp_path / "real", tmp_path / "link", tmp_path / "victim"
    real.mkdir()
    real.chmod(0o777)
    link.symlink_to(real)
    victim.write_text("kept")
    (real / "widget-secrets.new").symlink_to(victim)
    (real / "widget-secrets.json").symlink_to(victim)
    keys = FileKeys(link / "widget-secrets.json")
    keys._values = ("old",)
    keys.rotate()
    assert victim.read_text() == "kept"
    assert not (real / "widget-secrets.json").is_symlink()
    assert stat.S_IMODE((real / "widget-secrets.json").stat().st_mode) == 0o600


# Characters that move the cursor, hide or reverse text: C0, C1, overrides, separators.
DRIVING = ("\x1b[2J", "\x9b2J", "\x9d0;x\x9c", "\x7f", "\u202e", "\u2066", "\u2028", "\x85", "\r")


async def test_terminal(operators: Database, database_url: str, tmp_path: Path) -> None:
    """Texts of a tenant cannot control the operator's terminal; JSON has them unchanged."""
    text = f"before {''.join(DRIVING)} behind"
    change = Change("Eve", None)
    added = await tenants.add(operators, "Shop", "shop", ["shop.example"], change=change)
    changes = {"fallback_text": text, "ui_config": {"greeting": text}}
    await tenants.update(operators, "shop", changes, change=change)
    await entries.add(operators, added.id, Entry("Where?", text), change)
    await administrators.add(operators, "Eve", "shop")
    variables = environment(database_url)
    for arguments in (("audit",), ("tenant", "list"), ("knowledge", "list", "--tenant", "shop")):
        for options in ((), ("--json",)):
            done = hlas(*arguments, *options, cwd=tmp_path, **variables)
            assert done.returncode == 0, done.stderr
            found = [one for one in done.stdout if not one.isprintable() and one != "\n"]
            assert not found, (arguments, found)
    said = orjson.loads(hlas("audit", "--json", cwd=tmp_path, **variables).stdout)
    assert text in {(event["after"] or {}).get("fallback_text") for event in said}
