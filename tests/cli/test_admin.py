"""`hlas admin-key` and `hlas audit` on the command line."""

from pathlib import Path

import orjson
import pytest

from hlas.errors import InvalidAdminKey
from hlas.operators import administrators
from hlas.store.db import Database
from hlas.tenants import tenants
from processes import hlas


async def test_keys(database_url: str, operators: Database, tmp_path: Path) -> None:
    """A key is shown once, listed without its secret, and revoked by what the list shows."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = hlas(
            *arguments,
            cwd=tmp_path,
            DATABASE_URL=database_url,
            WIDGET_SESSION_JWT_SECRET="a secret for tests that is long enough",
        )
        return done.returncode, done.stdout, done.stderr

    await tenants.add(operators, "Shop", "shop", [])
    code, out, err = run("admin-key", "add", "Ada")
    assert (code, err.count("\n")) == (0, 2)
    assert "/console" in err
    key = out.strip()
    assert (await administrators.verify(operators, key)).role == "operator"
    code, out, _ = run("admin-key", "add", "Eva", "--tenant", "shop", "--json")
    added = orjson.loads(out)
    assert (await administrators.verify(operators, added["key"])).tenant == "shop"
    assert (added["role"], added["key"].startswith(added["prefix"])) == ("tenant", True)

    code, out, _ = run("admin-key", "list")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (
        0,
        [key[:15], added["prefix"]],
    )
    assert key[15:] not in out
    assert run("admin-key", "revoke", key[:15])[:2] == (0, f"Revoked {key[:15]}.\n")
    with pytest.raises(InvalidAdminKey):
        await administrators.verify(operators, key)
    assert "revoked" in run("admin-key", "list")[1]

    for wrong in (
        ("admin-key", "revoke", key[:15]),
        ("admin-key", "revoke", "nonsense"),
        ("admin-key", "add", "Ada", "--tenant", "no-such"),
        ("admin-key", "add", " "),
        ("audit", "--tenant", "no-such"),
    ):
        code, out, err = run(*wrong)
        assert (code, out, err.count("\n")) == (1, "", 1), wrong
        assert err.startswith("hlas: ")

    code, out, _ = run("audit", "--json")
    assert [event["action"] for event in orjson.loads(out)] == [
        "admin_key.revoke",
        "admin_key.add",
        "admin_key.add",
        "tenant.add",
    ]
    assert {event["actor"] for event in orjson.loads(out)} == {"command line"}
    code, out, _ = run("audit", "--tenant", "shop", "--action", "tenant")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "tenant.add" in out
    assert "by command line" in out
