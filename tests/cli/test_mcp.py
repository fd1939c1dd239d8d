"""`hlas mcp` on the command line: output and exit status."""

import asyncio
import os
import sys
from pathlib import Path

import orjson
import pytest

from hlas.agent.tools.mcp.servers import McpServerError, check_headers
from hlas.cli import mcp as commands
from hlas.store.db import Database
from hlas.tenants import tenants
from mcp_scripts import ScriptedServer, serve

KEY = "a key for tests that is long enough, surely"


async def hlas(database_url: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from hlas.cli import main; main()", "mcp", *arguments, "--tenant", "shop"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DATABASE_URL": database_url, "SECRETS_KEY": KEY, **environment},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_address(database_url: str, operators: Database, tmp_path: Path) -> None:
    """A server is added with headers, tried with them, listed without them, and removed."""
    await tenants.add(operators, "Shop", "shop", [])
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer top-secret\n\nX-Shop: 7\n", "utf-8")
    async with serve(ScriptedServer()) as server:
        allow = {"OUTBOUND_PRIVATE_HOSTS": server.place}
        refused = await hlas(database_url, "add", "crm", server.url)
        assert refused == (
            1,
            "",
            "hlas: the address cannot be used: only https addresses are allowed\n",
        )
        added = await hlas(
            database_url, "add", "crm", server.url, "--header-file", str(headers), **allow
        )
        assert added == (
            0,
            "shop has the server crm now. Try it: hlas mcp test crm --tenant shop\n",
            "",
        )
        code, out, err = await hlas(database_url, "test", "crm", **allow)
        assert (code, err) == (0, "")
        assert out.startswith("crm works (2025-06-18, ")
        assert out.endswith("Its tools:\n  crm__look\n")
        assert server.headers[-1]["Authorization"] == "Bearer top-secret"
        assert server.headers[-1]["X-Shop"] == "7"
        assert "tools/call" not in server.methods
    down = await hlas(database_url, "test", "crm", **allow)
    assert down[0] == 1
    assert down[2] == "hlas: crm: the server cannot be used: it does not accept connections\n"
    code, out, _ = await hlas(database_url, "test", "crm", "--json", **allow)
    assert (code, orjson.loads(out)["works"]) == (1, False)
    other = await hlas(database_url, "test", "crm", SECRETS_KEY="x" * 40, **allow)
    assert other[0] == 1
    assert other[2].startswith("hlas: SECRETS_KEY is not the key")
    listed = await hlas(database_url, "list", "--json")
    assert "top-secret" not in listed[1]
    assert orjson.loads(listed[1])[0]["url"] == server.url
    assert (await hlas(database_url, "remove", "crm"))[1] == "shop no longer has the server crm.\n"
    assert (await hlas(database_url, "remove", "crm"))[0] == 1
    rows = await operators.all("select action, after::text from events where action like 'mcp.%'")
    assert [row["action"] for row in rows] == [
        "mcp.add",
        "mcp.test",
        *["mcp.test"] * 2,
        "mcp.remove",
    ]
    assert "top-secret" not in str([tuple(row) for row in rows])


async def test_program(database_url: str, operators: Database) -> None:
    """An operator adds a program; the demo's is one."""
    await tenants.add(operators, "Shop", "shop", [])
    command = "python -m hlas.demo.localities"
    assert (await hlas(database_url, "add", "coverage", "--command", command))[0] == 0
    code, out, err = await hlas(database_url, "test", "coverage")
    assert (code, err) == (0, "")
    assert out.endswith("Its tools:\n  coverage__get_localities\n")
    assert (await hlas(database_url, "list"))[1] == f"coverage  {command}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("secret-without-colon", "line 1: it is not `Name: value`"),
        ("Host: secret.example", "a header's name is invalid, or is set by Hlas itself"),
        ("mcp-session-id: secret", "a header's name is invalid, or is set by Hlas itself"),
        ("A b: secret", "a header's name is invalid"),
        ("A: s\u00e9cret", "a header's value is empty, too long or not visible ASCII"),
        ("A:", "a header's value is empty"),
    ],
)
def test_headers(tmp_path: Path, text: str, told: str) -> None:
    """A header that cannot be sent, or is ours, is refused without being quoted."""
    file = tmp_path / "headers"
    file.write_text(text, "utf-8")
    with pytest.raises(McpServerError) as raised:
        check_headers(commands.read_headers(file))
    assert told in str(raised.value)
    assert "cret" not in str(raised.value).removeprefix(str(file))


async def test_errors(database_url: str, operators: Database, tmp_path: Path) -> None:
    """Every mistake is one line that says what is wrong."""
    await tenants.add(operators, "Shop", "shop", [])
    url = "https://tools.example.com/mcp"
    for arguments, told in (
        (("add", "a"), "name either the server's URL or a --command"),
        (("add", "A!", url), "the name must be 1 to 31 characters of a-z, 0-9 and _"),
        (("add", "a", "--command", "'b"), "the command has an open quote"),
        (("test", "none"), "there is no server none; `hlas mcp list` shows all"),
    ):
        assert await hlas(database_url, *arguments) == (1, "", f"hlas: {told}\n")
    headers = tmp_path / "headers"
    headers.write_text("A: b", "utf-8")
    unset = await hlas(database_url, "add", "a", url, "--header-file", str(headers), SECRETS_KEY="")
    assert unset[0] == 1
    assert unset[2].startswith("hlas: SECRETS_KEY: it must be set")
