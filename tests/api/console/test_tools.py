"""The console's page of a tenant's tools: MCP servers and products."""

import html
import io
from uuid import UUID

import httpx
import pytest

import log_scan
from administration import audit_of
from browsers import Browser, make_browser
from factories import Site, make_site
from hlas.agent import agent_settings
from hlas.agent.tools import products
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.products import Product
from hlas.api.console.tools import PAGE
from hlas.store.db import Database
from hlas.tenants import tenants
from mcp_scripts import TOOL, ScriptedServer, serve

SECRET = "Bearer sesame-0123456789"
KEYED = pytest.mark.settings(
    outbound_private_hosts="127.0.0.1", secrets_key="a key for tests that is long enough, surely"
)
HOSTILE = '"><script>alert(1)</script>'
INERT = "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
PROGRAM = ("python", "-m", "hlas.demo.localities")


def page_of(site: Site) -> str:
    return f"/tenants/{site.slug}/tools"


async def find_skus(operators: Database, site: Site) -> list[str]:
    found, _ = await products.page_products(operators, UUID(site.tenant_id), None, 1000)
    return [one.sku for one in found]


async def import_text(browser: Browser, site: Site, text: str, **more: str) -> httpx.Response:
    return await browser.post(f"{page_of(site)}/products", csv=text, **more)


@KEYED
async def test_a_server_from_nothing_to_removed(site: Site, operators: Database) -> None:
    """A tenant's administrator adds, tests and removes a server; no page shows its headers."""
    log_scan.hear(SECRET, "sesame-0123456789")
    browser = await make_browser(site.live, operators, site.slug)
    path = page_of(site)
    empty = await browser.get(path)
    assert "None yet. A server of the Model Context Protocol" in empty.text
    async with serve(ScriptedServer()) as server:
        headers = f"Authorization: {SECRET}\r\n\r\nX-Shop:  7 "
        added = await browser.post(f"{path}/servers", name="crm", url=server.url, headers=headers)
        assert (added.status_code, added.headers["location"]) == (303, f"/console{path}?done=added")
        listed = await browser.get(path)
        assert server.url in listed.text
        assert "not allowed yet" in listed.text
        works = await browser.post(f"{path}/servers/test", server="crm")
        assert works.status_code == 200
        assert "It works: 1 tool found in" in works.text
        assert "<code>crm__look</code>" in works.text
        assert server.headers[-1]["Authorization"] == SECRET
        assert server.headers[-1]["X-Shop"] == "7"
    fails = await browser.post(f"{path}/servers/test", server="crm")
    told = "It does not work: the server cannot be used: it does not accept connections."
    assert (fails.status_code, told in fails.text) == (200, True)
    taken = await browser.post(f"{path}/servers", name="crm", url=server.url, headers=headers)
    assert taken.status_code == 422
    assert "The tenant already has an MCP server of this name." in taken.text
    assert "Write the headers again; they are not shown." in taken.text
    audit = await browser.get("/audit")
    gone = await browser.post(f"{path}/servers/remove", server="crm")
    assert (gone.status_code, gone.headers["location"]) == (303, f"/console{path}?done=removed")
    assert (await browser.post(f"{path}/servers/remove", server="crm")).status_code == 404
    assert (await browser.post(f"{path}/servers/test", server="crm")).status_code == 404
    seen = (added, listed, works, fails, taken, audit, gone)
    assert not [answer.url for answer in seen if "sesame" in answer.text]
    rows = await operators.all("select * from events where action like 'mcp.%' order by id")
    actions = [row["action"] for row in rows]
    assert actions == ["mcp.add", "mcp.test", "mcp.test", "mcp.remove"]
    assert {row["actor"] for row in rows} == {rows[0]["actor"]}
    assert rows[0]["actor"].startswith("Ada")
    assert "sesame" not in str([tuple(row.values()) for row in rows])


@KEYED
async def test_wrong_servers_are_explained(site: Site, operators: Database) -> None:
    """Each mistake has a sentence at its field; what was written stays, except for headers."""
    browser = await make_browser(site.live, operators, site.slug)
    before = await audit_of(operators)
    good = {"name": "crm", "url": "https://tools.example.com/mcp", "headers": ""}
    for field, value, told in (
        ("name", "CRM!", "A name is 1 to 31 characters"),
        ("name", "", "A name is 1 to 31 characters"),
        ("name", "a" * 32, "A name is 1 to 31 characters"),
        ("url", "", "Write an https address such as"),
        ("url", "file:///etc/passwd", "Write an https address such as"),
        ("url", "https://a:b@tools.example.com/", "Write an https address such as"),
        ("url", "http://tools.example.com/mcp", "Only https addresses are allowed."),
        ("url", "https://10.0.0.1/mcp", "This is not a public address."),
        ("url", "https://[::1]/mcp", "This is not a public address."),
        ("url", "https://169.254.169.254/", "This is not a public address."),
        ("url", "https://localhost:8000/", "This is not a public address."),
        ("headers", "sesame", 'Line 1: it is not "Name: value".'),
        ("headers", "\n\nsesame", 'Line 3: it is not "Name: value".'),
        ("headers", "Host: sesame", "is set by Hlas itself."),
        ("headers", "A: sesam\u00e9", "not visible ASCII."),
    ):
        answer = await browser.post(f"{page_of(site)}/servers", **{**good, field: value})
        assert answer.status_code == 422, value
        problem = answer.text.partition(f'id="{field}-problem">')[2].partition("</p>")[0]
        assert told in html.unescape(problem), value
        assert answer.text.count('class="complaint" id=') == 2, "one at a field, one of the file"
        assert "sesam" not in answer.text
        if field == "url":
            assert 'value="crm"' in answer.text
            assert f'value="{value}"' in answer.text
    assert await audit_of(operators) == before
    for number in range(servers.MOST_SERVERS):
        answer = await browser.post(f"{page_of(site)}/servers", **{**good, "name": f"a{number}"})
        assert answer.status_code == 303
    full = await browser.post(f"{page_of(site)}/servers", **good)
    assert (full.status_code, "maximum number of MCP servers" in full.text) == (422, True)


async def test_no_secrets_key(site: Site, operators: Database) -> None:
    """Without SECRETS_KEY headers are refused at their field, and a test of one that has some
    says so; a server without headers is added.
    """
    browser = await make_browser(site.live, operators, site.slug)
    path = page_of(site)
    new = {"name": "crm", "url": "https://tools.example.com/mcp"}
    refused = await browser.post(f"{path}/servers", **new, headers="A: sesame")
    assert refused.status_code == 422
    assert "the operator has to set SECRETS_KEY first." in refused.text
    assert (await browser.post(f"{path}/servers", **new)).status_code == 303
    await operators.execute("update mcp_servers set headers = '\\x00'")
    unread = await browser.post(f"{path}/servers/test", server="crm")
    assert unread.status_code == 200
    assert "It does not work: its headers cannot be read" in unread.text


async def test_programs(site: Site, operators: Database) -> None:
    """A tenant's administrator neither adds nor starts a program, nor sees its command."""
    path = page_of(site)
    tenant = await make_browser(site.live, operators, site.slug)
    sent = {"name": "shell", "url": "", "command": "id", "headers": ""}
    assert (await tenant.post(f"{path}/servers", **sent)).status_code == 422
    await servers.add_program(operators, UUID(site.tenant_id), "coverage", PROGRAM)
    page = (await tenant.get(path)).text
    assert "A program that your operator runs" in page
    assert "hlas.demo.localities" not in page
    assert "/servers/test" not in page
    before = await audit_of(operators)
    assert (await tenant.post(f"{path}/servers/test", server="coverage")).status_code == 403
    assert await audit_of(operators) == before
    operator = await make_browser(site.live, operators)
    assert "python -m hlas.demo.localities" in (await operator.get(path)).text
    works = await operator.post(f"{path}/servers/test", server="coverage")
    assert "<code>coverage__get_localities</code>" in works.text
    assert (await operator.post(f"{path}/servers", **sent)).status_code == 422
    found = await servers.list_servers(operators, UUID(site.tenant_id))
    assert [one.name for one in found] == ["coverage"]


async def test_other_tenants(site: Site, operators: Database) -> None:
    """Another tenant's administrator gets 404 everywhere, and nothing changes."""
    other = await make_site(site.live, operators)
    tenant_id = UUID(other.tenant_id)
    await servers.add_program(operators, tenant_id, "coverage", PROGRAM)
    await products.save(operators, tenant_id, [Product("A", "Kettle")], source="test")
    browser = await make_browser(site.live, operators, site.slug)
    before = await audit_of(operators)
    path = page_of(other)
    assert (await browser.get(path)).status_code == 404
    for below, fields in (
        ("/servers", {"name": "crm", "url": "https://tools.example.com/mcp"}),
        ("/servers/test", {"server": "coverage"}),
        ("/servers/remove", {"server": "coverage"}),
        ("/products", {"csv": "sku,name\nB,Mug", "replace": "on"}),
        ("/products/remove", {"sku": "A"}),
    ):
        assert (await browser.post(f"{path}{below}", **fields)).status_code == 404, below
        own = await browser.post(f"{page_of(site)}{below}", **fields)
        if below.endswith(("test", "remove")):
            assert own.status_code == 404, below
    assert await find_skus(operators, other) == ["A"]
    assert [one[1] for one in (await audit_of(operators))[len(before) :]] == [
        "mcp.add",
        "product.import",
    ], "only the own tenant was changed"


async def test_which_tools_are_allowed(site: Site, operators: Database) -> None:
    """Each server says how many of its tools the agent may use; both pages link to each other."""
    tenant_id = UUID(site.tenant_id)
    for name in ("all", "one", "none"):
        await servers.add_program(operators, tenant_id, name, PROGRAM)
    await products.save(operators, tenant_id, [Product("A", "Kettle")], source="test")
    shop = await tenants.find_tenant(operators, site.slug)
    browser = await make_browser(site.live, operators)
    assert "may not look up products" not in (await browser.get(page_of(site))).text
    chosen = ["all__*", "one__get_localities", "one_more__x"]
    await agent_settings.update(operators, shop, {"tools": chosen})
    page = (await browser.get(page_of(site))).text
    for shown in ("all tools allowed", "1 allowed", "not allowed yet", "may not look up products"):
        assert page.count(shown) == 1, shown
    assert f'href="/console/tenants/{site.slug}/agent#tools"' in page
    tried = (await browser.post(f"{page_of(site)}/servers/test", server="one")).text
    assert '<code>one__get_localities</code> <span class="chip good">allowed</span>' in tried
    agent = (await browser.get(f"/tenants/{site.slug}/agent")).text
    assert f'href="/console{page_of(site)}"' in agent
    assert 'id="tools"' in agent


async def test_products_are_imported(site: Site, operators: Database) -> None:
    """From a spreadsheet's CSV: counted, updated, and with the box the others are removed."""
    browser = await make_browser(site.live, operators, site.slug)
    text = "\ufeffsku;name;price;colour\r\nK-7;Rychlovarná konvice;500 Kč;red\r\nM;Mug;;\r\n"
    first = await import_text(browser, site, text)
    assert first.status_code == 200
    assert "2 added, 0 updated, 0 unchanged, 0 removed." in first.text
    second = await import_text(browser, site, "sku,name\nM,Big mug\nT,Tea")
    assert "1 added, 1 updated, 0 unchanged, 0 removed." in second.text
    assert await find_skus(operators, site) == ["K-7", "M", "T"]
    third = await import_text(browser, site, "sku,name\nT,Tea", replace="on")
    assert "0 added, 0 updated, 1 unchanged, 2 removed." in third.text
    assert await find_skus(operators, site) == ["T"]
    assert [one[1:] for one in await audit_of(operators)][-3:] == [
        ("product.import", "console")
    ] * 3


async def test_wrong_rows_are_explained(site: Site, operators: Database) -> None:
    """The message names the line, the text stays in its field, and nothing is imported."""
    browser = await make_browser(site.live, operators, site.slug)
    before = await audit_of(operators)
    for text, told in (
        ("", "CSV, line 1: the header must name sku and name."),
        ("sku,name", "CSV: no products; it has no rows under its header."),
        ("sku,name\nA,Kettle\nA,Mug", "CSV, line 3: the same sku as on line 2."),
        ("sku,name\nA,Kettle\nB", "CSV, line 3: 1 cells where the header has 2;"),
        ("sku,name\nA,Kettle\n\n,Mug", "CSV, line 4: the sku or the name is empty."),
        ("sku,name,url\nA,Kettle,javascript:alert(1)", "CSV, line 2: the url is not an http"),
        ("sku,name\nA,\0", "CSV, line 2: a NUL character"),
    ):
        answer = await import_text(browser, site, text, replace="on")
        assert answer.status_code == 422, text
        assert told in answer.text, text
        assert f"\n{text}</textarea>" in answer.text, "what was written is lost"
        assert 'name="replace" data-confirm' in answer.text
    assert await find_skus(operators, site) == []
    assert await audit_of(operators) == before


async def test_list_search_and_remove(site: Site, operators: Database) -> None:
    """Page by page in the order of skus, or found as the agent finds them; removed by sku."""
    rows = [Product(f"S/{number:03}&a", f"Thing {number}") for number in range(PAGE * 2 + 1)]
    kettle = Product("K", "Kettle", "Boils water.", "500 CZK")
    tenant_id = UUID(site.tenant_id)
    await products.save(operators, tenant_id, [*rows, kettle], source="test")
    browser = await make_browser(site.live, operators, site.slug)
    path = page_of(site)
    first = await browser.get(path)
    assert f'<span class="chip">{len(rows) + 1}</span>' in first.text
    assert first.text.count("/products/remove") == PAGE
    assert f"?after=S%2F{PAGE - 2:03}%26a" in first.text
    last = await browser.get(path, params={"after": f"S/{PAGE * 2 - 1:03}&a"})
    assert last.text.count("/products/remove") == 1
    assert "More</a>" not in last.text
    found = await browser.get(path, params={"find": "boil a kettle"})
    assert "1 found, best first." in found.text
    assert "<code>K</code> Boils water." in found.text
    nothing = await browser.get(path, params={"find": "zzzzzz"})
    assert "0 found, best first." in nothing.text
    gone = await browser.post(f"{path}/products/remove", sku="K", find="boil & kettle")
    assert gone.headers["location"] == f"/console{path}?find=boil+%26+kettle&done=removed"
    again = await browser.post(f"{path}/products/remove", sku="K")
    assert (again.status_code, "no such product" in again.text) == (404, True)
    assert (await audit_of(operators))[-1][1:] == ("product.remove", "K")
    assert len(await find_skus(operators, site)) == len(rows)


@KEYED
async def test_hostile_texts_are_inert(site: Site, operators: Database, logs: io.BytesIO) -> None:
    """Names from a server, products, searches and refused forms are text, and are not logged."""
    browser = await make_browser(site.live, operators, site.slug)
    path = page_of(site)
    quoted = HOSTILE.replace('"', '""')
    text = f'sku,name,description,price\n"{quoted}","{quoted}","{quoted}","{quoted}"'
    pages = [await import_text(browser, site, text)]
    async with serve(ScriptedServer(tools=[{**TOOL, "name": HOSTILE}])) as server:
        await browser.post(f"{path}/servers", name="crm", url=server.url)
        pages.append(await browser.post(f"{path}/servers/test", server="crm"))
    pages.append(await browser.post(f"{path}/servers", name=HOSTILE, url=HOSTILE, headers=HOSTILE))
    pages.append(await import_text(browser, site, f"</textarea>{HOSTILE}"))
    pages.append(await browser.get(path, params={"find": HOSTILE, "after": HOSTILE}))
    for page in pages:
        assert "<script>alert" not in page.text
        assert INERT in page.text
        assert page.text.count("</textarea>") == 2
    assert await find_skus(operators, site) == [HOSTILE]
    gone = await browser.post(f"{path}/products/remove", sku=HOSTILE, find=HOSTILE)
    assert gone.status_code == 303
    assert "<" not in gone.headers["location"]
    assert b"alert" not in logs.getvalue()
