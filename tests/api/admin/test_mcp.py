"""A tenant's MCP servers through the admin API."""

import pytest

from administration import make_desk
from factories import Live, Site, make_site
from hlas.agent.tools.mcp import servers
from hlas.store.db import Database
from mcp_scripts import ScriptedServer, serve

KEY = "a key for tests that is long enough, surely"


@pytest.mark.settings(outbound_private_hosts="127.0.0.1", secrets_key=KEY)
async def test_life_of_a_server(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's key adds, tries, lists and removes a server; its headers are never shown."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/mcp"
    async with serve(ScriptedServer()) as server:
        new = {"name": "crm", "url": server.url, "headers": {"Authorization": "Bearer abcdefgh"}}
        added = await desk.ask("POST", path, json=new)
        assert added.status_code == 201, added.text
        assert (added.json()["name"], added.json()["url"]) == ("crm", server.url)
        taken = await desk.ask("POST", path, json=new)
        assert (taken.status_code, taken.json()["detail"]) == (409, "mcp_server_taken")
        trial = (await desk.ask("POST", f"{path}/crm/test")).json()
        assert (trial["works"], trial["tools"]) == (True, ["crm__look"])
        assert server.headers[-1]["Authorization"] == "Bearer abcdefgh"
    failed = (await desk.ask("POST", f"{path}/crm/test")).json()
    assert (failed["works"], failed["tools"]) == (False, [])
    assert failed["reason"] == "the server cannot be used: it does not accept connections"
    listed = await desk.ask("GET", path)
    assert "abcdefgh" not in listed.text + added.text
    assert [one["name"] for one in listed.json()["servers"]] == ["crm"]
    assert (await desk.ask("DELETE", f"{path}/crm")).status_code == 204
    gone = await desk.ask("DELETE", f"{path}/crm")
    assert (gone.status_code, gone.json()["detail"]) == (404, "mcp_server_not_found")
    rows = await operators.all("select action, after::text from events where action like 'mcp.%'")
    actions = [row["action"] for row in rows]
    assert actions == ["mcp.add", "mcp.test", "mcp.test", "mcp.remove"]
    assert "abcdefgh" not in str([tuple(row) for row in rows])


@pytest.mark.settings(secrets_key=KEY)
async def test_refused(live_server: Live, site: Site, operators: Database) -> None:
    """Only https; no commands; no header that is ours; at most ten servers."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/mcp"
    good = {"name": "a", "url": "https://tools.example.com/mcp"}
    for change, code in (
        ({"url": "http://tools.example.com/mcp"}, (400, "invalid_change")),
        ({"url": "https://a:b@tools.example.com/"}, (400, "invalid_change")),
        ({"headers": {"Host": "x"}}, (400, "invalid_change")),
        ({"headers": {"A": "b\r\nC: d"}}, (400, "invalid_change")),
        ({"command": ["sh"]}, (422, "invalid_request")),
        ({"name": "A"}, (422, "invalid_request")),
    ):
        answer = await desk.ask("POST", path, json={**good, **change})
        assert (answer.status_code, answer.json()["detail"]) == code
    for number in range(servers.MOST_SERVERS):
        answer = await desk.ask("POST", path, json={**good, "name": f"a{number}"})
        assert answer.status_code == 201
    full = await desk.ask("POST", path, json=good)
    assert (full.status_code, full.json()["detail"]) == (409, "too_many_mcp_servers")


async def test_no_key(live_server: Live, site: Site, operators: Database) -> None:
    """Without SECRETS_KEY no headers are stored; a server without headers is."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/mcp"
    new = {"name": "a", "url": "https://tools.example.com/mcp"}
    refused = await desk.ask("POST", path, json={**new, "headers": {"A": "b"}})
    assert (refused.status_code, refused.json()["detail"]) == (409, "vault_shut")
    assert (await desk.ask("POST", path, json=new)).status_code == 201


async def test_programs(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's key sees a program that the operator added, and cannot start it."""
    row = await operators.one("select id from tenants where slug = $1", site.slug)
    assert row is not None
    command = ("python", "-m", "hlas.demo.localities")
    await servers.add_program(operators, row["id"], "coverage", command)
    path = f"/tenants/{site.slug}/mcp"
    tenant, operator = (
        await make_desk(live_server, operators, site.slug),
        await make_desk(live_server, operators),
    )
    assert (await tenant.get(path))["servers"][0]["command"] == list(command)
    refused = await tenant.ask("POST", f"{path}/coverage/test")
    assert (refused.status_code, refused.json()["detail"]) == (403, "forbidden")
    trial = (await operator.ask("POST", f"{path}/coverage/test")).json()
    assert (trial["works"], trial["tools"]) == (True, ["coverage__get_localities"])


async def test_other_tenants(live_server: Live, site: Site, operators: Database) -> None:
    """Another tenant's servers are 404, like those of a tenant that does not exist."""
    other = await make_site(live_server, operators)
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{other.slug}/mcp"
    new = {"name": "a", "url": "https://tools.example.com/mcp"}
    for method, place in (
        ("GET", path),
        ("POST", path),
        ("POST", f"{path}/a/test"),
        ("DELETE", f"{path}/a"),
    ):
        answer = await desk.ask(method, place, json=new)
        assert (answer.status_code, answer.json()["detail"]) == (404, "tenant_not_found")
