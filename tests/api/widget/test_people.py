"""Asking for a person, leaving an address, rating an answer."""

import asyncio
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
import uuid_utils

from administration import make_desk
from browsers import make_browser
from factories import Site, make_site
from hlas import errors
from hlas.conversations.contacts import NewContact
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.store.db import Database

EMAIL = "jana@example.com"


async def call(site: Site, method: str, path: str, body: Any = None) -> httpx.Response:
    path = path.replace("*", site.conversation_id)
    content = {"json": body} if body is not None else {}
    return await site.live.client.request(
        method, f"/widget/{path}", headers=site.headers(), **content
    )


async def person(site: Site, body: Any = None) -> httpx.Response:
    return await call(site, "POST", "conversations/*/person", body)


async def contact(site: Site, body: Any) -> httpx.Response:
    return await call(site, "PUT", "conversations/*/contact", body)


async def rate(site: Site, message_id: str, body: Any) -> httpx.Response:
    return await call(site, "PUT", f"messages/{message_id}/rating", body)


async def answer(site: Site, text: str = "What is the weather on Mars?") -> str:
    """The id of the answer to a question; without knowledge it is the fallback."""
    await site.send(text)
    return str((await call(site, "POST", "messages/assistant")).json()["message_id"])


async def read_unanswered(operators: Database, site: Site) -> list[tuple[int, str]]:
    rows = await operators.all(
        "select seq, reason from unanswered where conversation_id = $1 order by seq",
        site.conversation_id,
    )
    return [(row["seq"], row["reason"]) for row in rows]


async def test_person_and_contact(answered: Site, operators: Database) -> None:
    """The first wish counts, and the last contact; administrators see both, and the list does."""
    desk = await make_desk(answered.live, operators, answered.slug)
    path = f"/tenants/{answered.slug}/conversations"
    told = [await person(answered) for _ in range(2)]
    for one in told:
        assert one.status_code == 200
        assert one.headers["cache-control"] == "no-store"
        assert one.json() == {"handler": "agent", "available": False, "contact_wanted": True}
    seen = await desk.get(f"{path}/{answered.conversation_id}")
    assert seen["person_wanted_at"]
    assert seen["contact"] == {"email": None, "name": None, "phone": None}
    for body in ({"phone": "+420 602 123 456"}, {"email": f" {EMAIL} ", "name": "Jana\u200cN\n"}):
        assert (await contact(answered, body)).status_code == 200
    again = await desk.get(f"{path}/{answered.conversation_id}")
    assert again["contact"] == {"email": EMAIL, "name": "Jana N", "phone": None}
    assert again["person_wanted_at"] == seen["person_wanted_at"]
    assert (await person(answered, {})).json()["contact_wanted"] is False
    [listed] = (await desk.get(path))["conversations"]
    assert listed["person_wanted_at"] == seen["person_wanted_at"]
    assert len(answered.live.events("person_wanted")) == 1


async def test_contact_is_a_wish(answered: Site, operators: Database) -> None:
    """Who leaves a contact wants a person, whether or not the wish itself arrived."""
    for _ in range(2):
        assert (await contact(answered, {"email": EMAIL})).json()["email"] == EMAIL
    row = await operators.one("select person_wanted_at from conversations")
    assert row is not None
    assert row["person_wanted_at"] is not None
    assert len(answered.live.events("person_wanted")) == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "contact_missing"),
        ({"email": " ", "name": None}, "contact_missing"),
        ({"email": "jana"}, "string_pattern_mismatch"),
        ({"email": "jana@example"}, "string_pattern_mismatch"),
        ({"email": "jana@example.com, eva@example.com"}, "string_pattern_mismatch"),
        ({"email": "jana@example.com\r\nBcc: eva@example.com"}, "string_pattern_mismatch"),
        ({"email": "j@" + "x" * 260 + ".cz"}, "string_too_long"),
        ({"name": "x" * 101}, "string_too_long"),
        ({"phone": "call me"}, "string_pattern_mismatch"),
        ({"phone": "1" * 50}, "string_too_long"),
        ({"email": 5}, "string_type"),
        ({"email": EMAIL, "address": "Elm Street"}, "extra_forbidden"),
    ],
)
async def test_invalid_contacts(body: dict[str, Any], kind: str) -> None:
    """What is not an address is refused, without an echo, before anything is stored."""
    with pytest.raises(errors.InvalidRequest) as refused:
        NewContact.parse(orjson.dumps(body))
    assert [fault["type"] for fault in refused.value.errors] == [kind]
    assert "example" not in str(refused.value.body("x"))


async def test_none_of_these_and_thumbs(answered: Site, operators: Database) -> None:
    """The question becomes an unanswered one; a rating that is taken back leaves no trace of it."""
    message_id = await answer(answered)
    assert (await person(answered, {"none_of": message_id})).status_code == 200
    assert await read_unanswered(operators, answered) == [(1, "none_of_these")]
    for body in ({"rating": "down"}, {"rating": "down", "comment": " Wrong year "}):
        rated = await rate(answered, message_id, body)
        assert (rated.status_code, rated.content) == (204, b"")
    assert await read_unanswered(operators, answered) == [(1, "thumbs_down")]
    desk = await make_desk(answered.live, operators, answered.slug)
    path = f"/tenants/{answered.slug}/conversations/{answered.conversation_id}/messages"
    question, reply = (await desk.get(path))["messages"]
    assert question["rating"] is None
    assert (reply["rating"]["rating"], reply["rating"]["comment"]) == ("down", "Wrong year")
    browser = await make_browser(answered.live, operators)
    shown = (await browser.get(path.removesuffix("/messages"))).text
    for told in ("Person wanted", "Not helpful", "Wrong year"):
        assert told in shown
    assert "person wanted" in (await browser.get(f"/tenants/{answered.slug}/conversations")).text
    assert (await rate(answered, message_id, {"rating": "up"})).status_code == 204
    # It is still what the knowledge had no answer for.
    assert await read_unanswered(operators, answered) == [(1, "fallback")]
    _, reply = (await desk.get(path))["messages"]
    assert (reply["rating"]["rating"], reply["rating"]["comment"]) == ("up", "")


async def test_rated_entries(answered: Site, operators: Database) -> None:
    """A question whose answer was not helpful is open until the visitor changes their mind, with
    the entry that was sent: it is not suggested as an answer.
    """
    entry = await entries.add(
        operators, UUID(answered.tenant_id), Entry("When do you open?", "At nine.")
    )
    message_id = await answer(answered, "When do you open?")
    for rating, stored in (("down", [[str(entry.id)]]), ("up", [])):
        assert (await rate(answered, message_id, {"rating": rating})).status_code == 204
        rows = await operators.all("select entries from unanswered")
        assert [[str(one) for one in row["entries"]] for row in rows] == stored


async def test_whose_it_is_not(answered: Site, operators: Database) -> None:
    """Another's conversation or message, one's own words, and rubbish: refused, nothing stored."""
    other = await make_site(answered.live, operators, handler="agent")
    message_id = await answer(answered)
    own = (await answered.history())["messages"][0]["id"]
    for asker, id_ in [
        (other, message_id),
        (answered, own),
        (answered, str(uuid_utils.uuid7())),
        (answered, "1"),
        (answered, "%00"),
    ]:
        refused = [await rate(asker, id_, {"rating": "down"})]
        if len(id_) > 3:
            refused.append(await person(asker, {"none_of": id_}))
        for one in refused:
            assert (one.status_code, one.json()["detail"]) == (404, "message_not_found")
    for method, path in (("POST", "person"), ("PUT", "contact")):
        foreign = await call(
            other, method, f"conversations/{answered.conversation_id}/{path}", {"name": "Eve"}
        )
        assert (foreign.status_code, foreign.json()["detail"]) == (403, "conversation_mismatch")
    for body in ({"rating": "sideways"}, {"rating": "up", "comment": "x" * 1001}, {"none_of": "x"}):
        assert (await rate(answered, message_id, body)).json()["detail"] == "invalid_request"
        assert (await person(answered, body)).json()["detail"] == "invalid_request"
    rows = await operators.all(
        "select c.person_wanted_at, c.contact, r.rating from conversations c"
        " left join ratings r on r.conversation_id = c.id"
    )
    stored = [(row["person_wanted_at"], row["contact"], row["rating"]) for row in rows]
    assert stored == [(None, {}, None)] * 2


async def test_closed_and_signed_out(answered: Site, operators: Database) -> None:
    """A closed conversation takes no wish and no contact, but a rating; signed out, nothing."""
    message_id = await answer(answered)
    desk = await make_desk(answered.live, operators, answered.slug)
    await desk.ask(
        "POST", f"/tenants/{answered.slug}/conversations/{answered.conversation_id}/close"
    )
    for refused in (await person(answered), await contact(answered, {"email": EMAIL})):
        assert (refused.status_code, refused.json()["detail"]) == (403, "conversation_closed")
    assert (await rate(answered, message_id, {"rating": "up"})).status_code == 204
    await operators.execute("update tenants set token_generation = token_generation + 1")
    for refused in (await person(answered), await rate(answered, message_id, {"rating": "down"})):
        assert (refused.status_code, refused.json()["detail"]) == (401, "session_revoked")
    row = await operators.one("select contact, person_wanted_at from conversations")
    assert row is not None
    assert (row["contact"], row["person_wanted_at"]) == ({}, None)


@pytest.mark.settings(rate_limit_messages_conversation="40/h")
async def test_all_at_once_and_too_often(answered: Site, operators: Database) -> None:
    """Many at once store one wish and one rating; the limit is that of messages, beside theirs."""
    message_id = await answer(answered)
    calls = [rate(answered, message_id, {"rating": thumb}) for thumb in ("up", "down") * 10]
    calls += [contact(answered, {"name": f"Jana {number}"}) for number in range(10)]
    calls += [person(answered, {"none_of": message_id}) for _ in range(20)]
    found = await asyncio.gather(*calls)
    statuses = [one.status_code for one in found]
    assert statuses.count(429) == 10
    assert statuses.count(200) + statuses.count(204) == 40
    refused = next(one for one in found if one.status_code == 429)
    assert refused.json()["detail"] == "rate_limited"
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["access-control-allow-origin"] == answered.origin
    [rating] = await operators.all("select rating from ratings")
    # The last rating decides both.
    [(_, reason)] = await read_unanswered(operators, answered)
    assert (reason == "thumbs_down") == (rating["rating"] == "down")
    assert (await answered.send("still heard")).status_code == 200


async def test_half_sent(answered: Site) -> None:
    """A body that stops half way stores nothing, and the next request is answered."""
    path = f"/widget/conversations/{answered.conversation_id}/contact"
    url = httpx.URL(answered.live.url)
    _, writer = await asyncio.open_connection(url.host, url.port)
    headers = answered.headers(Host="x", Content_Type="application/json", Content_Length="40")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f'PUT {path} HTTP/1.1\r\n{lines}\r\n{{"email": "jana@'.encode())
    await writer.drain()
    writer.close()
    assert (await person(answered)).json()["contact_wanted"] is True
