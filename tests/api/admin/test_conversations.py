"""Conversations as administrators search, read and close them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from administration import Desk, audit_of, make_desk
from factories import Live, Site
from hlas.conversations import conversations
from hlas.conversations.conversations import Search
from hlas.store.db import Database


async def talk(site: Site, *texts: str, **session: Any) -> str:
    """Create a conversation with these messages; returns its id."""
    await site.open(**session)
    for text in texts:
        assert (await site.send(text)).status_code == 200
    return site.conversation_id


async def all_pages(desk: Desk, path: str, name: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = await desk.get(path, **query)
        found += page[name]
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


async def ids(desk: Desk, site: Site, **query: Any) -> list[str]:
    path = f"/tenants/{site.slug}/conversations"
    return [one["id"] for one in await all_pages(desk, path, "conversations", **query)]


async def test_newest_first_by_pages(live_server: Live, site: Site, operators: Database) -> None:
    """Paging lists every conversation once, newest first, with its length and last message."""
    desk = await make_desk(live_server, operators, site.slug)
    made = [site.conversation_id] + [await talk(site, f"hello {n}", "bye") for n in range(5)]
    assert await ids(desk, site, limit=2) == made[::-1]
    first = (await desk.get(f"/tenants/{site.slug}/conversations", limit=1))["conversations"][0]
    assert first["messages"] == 2
    assert first["last_message"] == {"role": "user", "text": "bye"}
    assert first["origin"] == site.origin
    oldest = (await desk.get(f"/tenants/{site.slug}/conversations"))["conversations"][-1]
    assert (oldest["messages"], oldest["last_message"]) == (0, None)


async def test_search(live_server: Live, site: Site, operators: Database) -> None:
    """Search by text without case or accents, by visitor, by status; % and _ are literal."""
    desk = await make_desk(live_server, operators)
    bread = await talk(site, "Máte čerstvý CHLÉB?", visitor_id="eva")
    sale = await talk(site, "sleva 100% na chleba_", visitor_id="jan")
    assert await ids(desk, site, text="chleb") == [sale, bread]
    assert await ids(desk, site, text="Čerstvý chléb") == [bread]
    assert await ids(desk, site, text="0%") == [sale]
    assert await ids(desk, site, text="%č%") == []
    assert await ids(desk, site, text="a_") == [sale]
    assert await ids(desk, site, visitor_id="eva") == [bread]
    assert await ids(desk, site, visitor_id="ev") == []
    await desk.ask("POST", f"/tenants/{site.slug}/conversations/{sale}/close")
    assert await ids(desk, site, status="closed") == [sale]
    assert await ids(desk, site, status="open", text="chleb") == [bread]


async def test_search_by_time(live_server: Live, site: Site, operators: Database) -> None:
    """`since` and `until` bound the time when a conversation started."""
    desk = await make_desk(live_server, operators)
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    assert await ids(desk, site, since=(now - hour).isoformat()) == [site.conversation_id]
    assert await ids(desk, site, since=(now + hour).isoformat()) == []
    assert await ids(desk, site, until=(now - hour).isoformat()) == []
    assert await ids(desk, site, until="9999-12-31T00:00:00Z") == [site.conversation_id]
    assert await ids(desk, site, since="0001-01-01T00:00:00Z") == [site.conversation_id]
    naive = await desk.ask(
        "GET", f"/tenants/{site.slug}/conversations", params={"since": "2026-01-01T00:00:00"}
    )
    assert naive.status_code == 422


async def test_a_search_is_split_into_short_requests(
    monkeypatch: pytest.MonkeyPatch, site: Site, operators: Database
) -> None:
    """A request examines a bounded number of conversations; following its cursor finds all."""
    made = [await talk(site, "needle" if n in {1, 8} else "hay") for n in range(10)]
    monkeypatch.setattr(conversations, "EXAMINED", 3)
    tenant_id, search = UUID(site.tenant_id), Search(text="needle")
    pages: list[list[str]] = []
    before: UUID | None = None
    while True:
        found, before = await conversations.find(operators, tenant_id, search, before=before)
        pages.append([str(one.id) for one in found])
        if before is None:
            break
    # Eleven conversations with that of the site itself: four requests.
    assert pages == [[made[8]], [], [made[1]], []]


async def test_transcript(live_server: Live, site: Site, operators: Database) -> None:
    """All messages once, oldest first; `after` returns only newer ones."""
    desk = await make_desk(live_server, operators, site.slug)
    conversation = await talk(site, *(f"m{n}" for n in range(5)), metadata={"page": "/cart"})
    path = f"/tenants/{site.slug}/conversations/{conversation}"
    found = await all_pages(desk, f"{path}/messages", "messages", limit=2)
    assert [(one["seq"], one["content"]) for one in found] == [(n + 1, f"m{n}") for n in range(5)]
    rest = await desk.get(f"{path}/messages", cursor=5)
    assert rest == {"messages": [], "next_cursor": None}
    about = await desk.get(path)
    assert (about["messages"], about["metadata"], about["status"]) == (5, {"page": "/cart"}, "open")


async def test_closing(live_server: Live, site: Site, operators: Database) -> None:
    """A closed conversation accepts no message; closing it again adds no second event."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/close"
    for _ in range(2):
        closed = await desk.ask("POST", path)
        assert (closed.status_code, closed.json()["status"]) == (200, "closed")
    refused = await site.send()
    assert (refused.status_code, refused.json()["detail"]) == (403, "conversation_closed")
    events = [event for event in await audit_of(operators) if event[1] == "conversation.close"]
    assert events == [(f"Ada ({desk.prefix})", "conversation.close", site.conversation_id)]
    row = await operators.one("select before, after from events where action like '%close'")
    assert row is not None
    assert (row["before"], row["after"]) == ({"status": "open"}, {"status": "closed"})


async def test_the_search_walks_the_primary_key(site: Site, operators: Database) -> None:
    """A page is read by the primary key, whatever the number of conversations."""
    query = conversations.queries.find_conversations
    bounds = (conversations.FIRST, conversations.LAST)
    arguments = (UUID(site.tenant_id), *bounds, None, None, None, 51, 51, False)
    async with operators.transaction() as connection:
        # With few rows any plan is fast; the test is that this plan is possible.
        for kind in ("seqscan", "bitmapscan", "sort"):
            await connection.execute(f"set local enable_{kind} = off")
        plan = await connection.fetch(f"explain {query}", *arguments)
        words = conversations.queries.last_words
        said = await connection.fetch(f"explain {words}", arguments[0], [conversations.FIRST])
    text = "\n".join(row[0] for row in plan)
    assert "Index Scan Backward using pk_conversations" in text
    assert "uq_messages__tenant_id_conversation_id_seq" in text
    text = "\n".join(row[0] for row in said)
    assert "Index Scan Backward using uq_messages__tenant_id_conversation_id_seq" in text
