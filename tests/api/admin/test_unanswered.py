"""Unanswered questions through the admin API."""

from typing import Any
from uuid import UUID, uuid4

from administration import Desk, audit_of, make_desk
from factories import Live, Site, make_site
from hlas.knowledge import entries
from hlas.knowledge.entries import MOST_WORDINGS, Entry
from hlas.store.db import Database
from questions import ask_in_vain


async def list_groups(desk: Desk, site: Site) -> list[Any]:
    page = await desk.get(f"/tenants/{site.slug}/unanswered")
    assert page["next_cursor"] is None
    groups: list[Any] = page["groups"]
    return groups


def places(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: one[name] for name in ("conversation_id", "seq")} for one in group["questions"]]


async def test_from_question_to_answer(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's key lists groups with the closest entry, and resolves them: by an answer, by
    other wordings, or without one; each change is one event without the visitors' words.
    """
    desk = await make_desk(live_server, operators, site.slug)
    tenant_id = UUID(site.tenant_id)
    pool = await entries.add(operators, tenant_id, Entry("Is there a swimming pool?", "Yes."))
    asked = [
        await ask_in_vain(operators, site.tenant_id, text)
        for text in ("Smoking", "Swimming pool", "A swimming pool?", "Can I bring a dog?", "dog")
    ]
    await ask_in_vain(operators, site.tenant_id, "Pool table?", "none_of_these", [str(pool.id)])
    await ask_in_vain(operators, (await make_site(live_server, operators)).tenant_id, "A secret?")

    dogs, swimming, *others = await list_groups(desk, site)
    assert (dogs["question"], dogs["wordings"], dogs["count"]) == ("Can I bring a dog?", ["dog"], 2)
    assert {one["conversation_id"] for one in dogs["questions"]} == set(asked[3:])
    assert dogs["reasons"] == {"fallback": 2}
    assert swimming["suggestion"]["question"] == pool.question
    # The only entry was refused.
    assert [one["suggestion"] for one in others if one["question"] == "Pool table?"] == [None]
    assert len(others) == 2

    path = f"/tenants/{site.slug}/unanswered"
    entry = {"question": "May I bring a dog?", "answer": "Yes, for 10 EUR."}
    answered = await desk.ask(
        "POST", f"{path}/answer", json={"questions": places(dogs), "entry": entry}
    )
    assert answered.status_code == 201, answered.text
    assert (await desk.ask("GET", answered.headers["Location"].removeprefix("/admin"))).json()[
        "answer"
    ] == entry["answer"]
    worded = await desk.ask(
        "POST",
        f"{path}/wordings",
        json={
            "questions": places(swimming),
            "entry_id": str(pool.id),
            "wordings": ["Where can I swim?", "where can I swim?", "Is there a swimming pool?"],
        },
    )
    assert (worded.status_code, worded.json()["wordings"]) == (200, ["Where can I swim?"])
    for group in others:
        dismissed = await desk.ask("POST", f"{path}/dismiss", json={"questions": places(group)})
        assert (dismissed.status_code, dismissed.json()) == (200, {"resolved": 1})
    assert await list_groups(desk, site) == []
    events = [event for event in await audit_of(operators) if event[1].startswith("unanswered")]
    assert [target for _, _, target in events] == [answered.json()["id"], str(pool.id), "", ""]


async def test_nothing_is_lost(live_server: Live, site: Site, operators: Database) -> None:
    """A change that is refused resolves nothing: a taken question, no entry, too many wordings,
    a wording that is too long, places that are not valid.
    """
    desk = await make_desk(live_server, operators, site.slug)
    tenant_id = UUID(site.tenant_id)
    full = Entry("Pool?", "Yes.", wordings=tuple(f"w{number}" for number in range(MOST_WORDINGS)))
    stored = await entries.add(operators, tenant_id, full)
    await ask_in_vain(operators, site.tenant_id, "Where can I swim?")
    before = await list_groups(desk, site)
    [group] = before
    wordings = {"entry_id": str(stored.id), "wordings": ["Where can I swim?"]}
    refused: list[tuple[str, dict[str, Any], int, str]] = [
        ("answer", {"entry": {"question": "Pool?", "answer": "No."}}, 409, "question_taken"),
        ("answer", {"entry": {"question": "Where?"}}, 422, "invalid_request"),
        ("wordings", wordings, 409, "too_many_wordings"),
        ("wordings", {**wordings, "entry_id": str(uuid4())}, 404, "entry_not_found"),
        ("wordings", {**wordings, "wordings": ["w" * 501]}, 422, "invalid_request"),
        ("wordings", {**wordings, "wordings": []}, 422, "invalid_request"),
        ("dismiss", {"questions": []}, 422, "invalid_request"),
        ("dismiss", {"questions": [{"conversation_id": "x", "seq": 1}]}, 422, "invalid_request"),
    ]
    for route, body, status, code in refused:
        answer = await desk.ask(
            "POST",
            f"/tenants/{site.slug}/unanswered/{route}",
            json={"questions": places(group), **body},
        )
        assert (answer.status_code, answer.json()["detail"]) == (status, code), body
    assert await list_groups(desk, site) == before
    # A wording that the entry has already needs no room.
    known = {**wordings, "questions": places(group), "wordings": ["w1"]}
    answer = await desk.ask("POST", f"/tenants/{site.slug}/unanswered/wordings", json=known)
    assert (answer.status_code, await list_groups(desk, site)) == (200, [])
