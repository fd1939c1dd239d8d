"""Imports through the admin API: previews, choices, sources, and what is refused."""

import asyncio
from base64 import b64encode
from typing import Any
from uuid import UUID, uuid4

import pytest

from administration import Desk, audit_of, make_desk
from documents import Line, make_pdf
from factories import Live, Site, make_site
from hlas.knowledge import entries
from hlas.store.db import Database
from raw_http import connect, exchange
from websites import make_page, open_website

PDF = make_pdf([[Line(60, 800, "Jak se máte?"), Line(60, 780, "Děkujeme, dobře.")]])
LOOPBACK = pytest.mark.settings(outbound_private_hosts="127.0.0.1")


def upload(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "content": b64encode(content).decode()}


async def ask(desk: Desk, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = await desk.ask("POST", path, json=body)
    return answer.status_code, answer.json()


async def test_file(live_server: Live, site: Site, operators: Database) -> None:
    """A file is shown, then saved, which is one event; its name is without folders."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}"
    body = upload("C:\\files\\letak.pdf", PDF)
    status, shown = await ask(desk, f"{path}/knowledge/preview", body)
    assert (status, shown["kind"], shown["location"], shown["warnings"]) == (
        *(200, "file", "letak.pdf"),
        [],
    )
    assert shown["items"] == [
        {
            "state": "new",
            "question": "Jak se máte?",
            "answer": "Děkujeme, dobře.",
            "kind": "answer",
            "url": "",
            "entry_id": None,
        }
    ]
    assert await desk.get(f"{path}/sources") == {"sources": []}
    saved = await ask(desk, f"{path}/knowledge/import", body)
    assert saved == (
        200,
        {
            "location": "letak.pdf",
            "added": 1,
            "updated": 0,
            "removed": 0,
            "unchanged": 0,
            "kept": 0,
        },
    )
    _, shown = await ask(desk, f"{path}/knowledge/preview", body)
    assert [item["state"] for item in shown["items"]] == ["unchanged"]
    [source] = (await desk.get(f"{path}/sources"))["sources"]
    assert (source["kind"], source["entries"]) == ("file", 1)
    refused = await desk.ask("POST", f"{path}/sources/{source['id']}/refresh")
    assert (refused.status_code, refused.json()["detail"]) == (409, "not_refreshable")
    removed = await desk.ask("DELETE", f"{path}/sources/{source['id']}")
    assert removed.status_code == 204
    assert (await desk.get(f"{path}/knowledge"))["entries"] == []
    actions = [action for _, action, _ in await audit_of(operators)]
    assert actions[-2:] == ["knowledge.import", "knowledge.remove_source"]


@LOOPBACK
async def test_site(live_server: Live, site: Site, operators: Database) -> None:
    """Of a site, only what was chosen is saved; a refresh takes what changed of that."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}"
    async with open_website() as website:
        website.pages["/"] = make_page("Home", ("When?", "Always."), ("Where?", "Here."))
        body = {"site": website.url}
        _, shown = await ask(desk, f"{path}/knowledge/preview", body)
        assert shown["location"] == f"{website.url}/"
        assert [item["question"] for item in shown["items"]] == ["When?", "Where?"]
        status, saved = await ask(desk, f"{path}/knowledge/import", {**body, "take": ["Where?"]})
        assert (status, saved["added"]) == (200, 1)
        website.pages["/"] = make_page("Home", ("When?", "Never."), ("Where?", "There."))
        [source] = (await desk.get(f"{path}/sources"))["sources"]
        answer = await desk.ask("POST", f"{path}/sources/{source['id']}/refresh")
        assert (answer.status_code, answer.json()["updated"]) == (200, 1)
    [entry] = await entries.list_entries(operators, UUID(site.tenant_id))
    assert (entry.question, entry.answer) == ("Where?", "There.")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_request"),
        ({"url": "https://a.example/", "site": "https://a.example/"}, 422, "invalid_request"),
        ({"content": "aGVsbG8="}, 422, "invalid_request"),
        ({"name": "a.html", "content": "not base64!"}, 422, "invalid_request"),
        ({"url": "https://127.0.0.1/"}, 422, "unreadable_source"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, 422, "unreadable_source"),
        ({"site": "https://localhost/"}, 422, "unreadable_source"),
        ({"site": "javascript:alert(1)"}, 422, "unreadable_source"),
        (upload("a.exe", b"MZ"), 415, "unsupported_document"),
        (upload("a.pdf", b"%PDF-1.4"), 422, "unreadable_source"),
        (upload("a.csv", b"question\nonly\n"), 422, "unreadable_source"),
        (upload("a.html", b"x" * (10 * 2**20 + 1)), 413, "payload_too_large"),
    ],
)
async def test_refused(
    live_server: Live,
    site: Site,
    operators: Database,
    body: dict[str, Any],
    status: int,
    code: str,
) -> None:
    """What cannot be read is an error that says why, and nothing is saved."""
    desk = await make_desk(live_server, operators, site.slug)
    for action in ("preview", "import"):
        answered, problem = await ask(desk, f"/tenants/{site.slug}/knowledge/{action}", body)
        assert (answered, problem["detail"]) == (status, code)
    assert await desk.get(f"/tenants/{site.slug}/sources") == {"sources": []}


async def test_sources_of_others(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's administrator reaches neither another tenant nor its sources by their ids."""
    other = await make_site(live_server, operators)
    mine = await make_desk(live_server, operators, site.slug)
    theirs = await make_desk(live_server, operators, other.slug)
    await ask(theirs, f"/tenants/{other.slug}/knowledge/import", upload("a.pdf", PDF))
    [source] = (await theirs.get(f"/tenants/{other.slug}/sources"))["sources"]
    for slug, name in ((site.slug, source["id"]), (site.slug, uuid4()), (other.slug, source["id"])):
        place = f"/tenants/{slug}/sources/{name}"
        assert (await mine.ask("POST", f"{place}/refresh")).status_code == 404
        assert (await mine.ask("DELETE", place)).status_code == 404
    refused, _ = await ask(mine, f"/tenants/{other.slug}/knowledge/preview", upload("a.pdf", PDF))
    assert refused == 404
    assert (await theirs.get(f"/tenants/{other.slug}/sources"))["sources"] == [source]


async def test_two_at_once(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant has one document read at a time; the other request is told to come back."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/knowledge/import"
    answers = await asyncio.gather(*(ask(desk, path, upload("a.pdf", PDF)) for _ in range(3)))
    assert sorted(status for status, _ in answers) == [200, 409, 409]
    assert {body["detail"] for status, body in answers if status == 409} == {"import_busy"}


async def test_half_sent(live_server: Live, site: Site, operators: Database) -> None:
    """An administrator cannot fill the memory: while one upload arrives, others are refused."""
    desk, other = [await make_desk(live_server, operators, site.slug) for _ in range(2)]
    path = f"/tenants/{site.slug}/knowledge/preview"
    head = (
        f"POST /admin{path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {desk.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {14 * 2**20}\r\n\r\n"
    ).encode()
    _, writer = await connect(live_server.url)
    writer.write(head + b"x" * 2**20)
    async with asyncio.timeout(30):
        # Until the first one has got its place.
        while (refused := await exchange(live_server.url, head, silence=0.2)).status != 409:
            pass
    assert refused.json["detail"] == "import_busy"
    assert (await ask(other, path, upload("a.pdf", PDF)))[0] == 200
    writer.close()
    async with asyncio.timeout(30):
        while (answer := await ask(desk, path, upload("a.pdf", PDF)))[0] == 409:
            pass
    assert answer[0] == 200
