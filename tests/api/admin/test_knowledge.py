"""A tenant's questions and answers through the admin API."""

import asyncio
from typing import Any
from uuid import uuid4

from administration import audit_of, lock_rows, make_desk, wait_for_locks
from factories import Live, Site
from hlas.store.db import Database

ENTRY = {
    "question": "Kdy máte otevřeno?",
    "answer": "Denně od 8 do 18.",
    "keywords": ["hodiny"],
    "language": "cs",
}


async def test_life_of_an_entry(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's key can add, read, replace and remove an entry; each is one event with content."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/knowledge"
    added = await desk.ask("POST", path, json=ENTRY)
    assert added.status_code == 201, added.text
    place = f"{path}/{added.json()['id']}"
    assert added.headers["Location"] == f"/admin{place}"
    assert {**added.json(), **ENTRY} == await desk.get(place)
    replaced = await desk.ask(
        "PUT", place, tag=added.headers["ETag"], json={**ENTRY, "answer": "Jen v pátek."}
    )
    assert (replaced.status_code, replaced.json()["answer"]) == (200, "Jen v pátek.")
    stale = await desk.ask("PUT", place, tag=added.headers["ETag"], json=ENTRY)
    assert (stale.status_code, stale.json()["detail"]) == (412, "precondition_failed")
    assert (await desk.ask("DELETE", place, tag=added.headers["ETag"])).status_code == 412
    assert (await desk.ask("DELETE", place)).status_code == 428
    gone = await desk.ask("DELETE", place, tag=replaced.headers["ETag"])
    assert gone.status_code == 204
    again = await desk.ask("GET", place)
    assert (again.status_code, again.json()["detail"]) == (404, "entry_not_found")

    rows = await operators.all("select * from events where action like 'knowledge.%' order by id")
    assert [row["action"] for row in rows] == [
        "knowledge.add",
        "knowledge.update",
        "knowledge.remove",
    ]
    before = {**ENTRY, "kind": "answer", "wordings": [], "url": ""}
    assert rows[1]["before"] == before
    assert rows[1]["after"] == rows[2]["before"] == {**before, "answer": "Jen v pátek."}


async def test_conflicts(live_server: Live, site: Site, operators: Database) -> None:
    """A question exists once; saving the same content again changes nothing and adds no event."""
    desk = await make_desk(live_server, operators)
    path = f"/tenants/{site.slug}/knowledge"
    first = (await desk.ask("POST", path, json=ENTRY)).json()["id"]
    second = (await desk.ask("POST", path, json={**ENTRY, "question": "Kde jste?"})).json()["id"]
    before = await audit_of(operators)
    taken = await desk.ask("POST", path, json=ENTRY)
    assert (taken.status_code, taken.json()["detail"]) == (409, "question_taken")
    renamed = await desk.ask("PUT", f"{path}/{second}", tag="*", json=ENTRY)
    assert (renamed.status_code, renamed.json()["detail"]) == (409, "question_taken")
    same = await desk.ask("PUT", f"{path}/{first}", tag="*", json=ENTRY)
    assert same.status_code == 200
    missing = await desk.ask("PUT", f"{path}/{uuid4()}", tag="*", json=ENTRY)
    assert missing.status_code == 404
    assert await audit_of(operators) == before


async def test_one_of_many_replacements_wins(
    live_server: Live, site: Site, operators: Database
) -> None:
    """Of concurrent changes to the same state one succeeds; the others get 412."""
    desk = await make_desk(live_server, operators)
    path = f"/tenants/{site.slug}/knowledge"
    added = await desk.ask("POST", path, json=ENTRY)
    place, tag = f"{path}/{added.json()['id']}", added.headers["ETag"]
    async with lock_rows(operators, "select from knowledge for update"):
        asked = [
            asyncio.create_task(
                desk.ask("PUT", place, tag=tag, json={**ENTRY, "answer": f"{number}"})
            )
            for number in range(3)
        ]
        await wait_for_locks(operators, len(asked))
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412]


async def test_entries_come_by_pages(live_server: Live, site: Site, operators: Database) -> None:
    """Paging lists every entry once, in the order of creation."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/knowledge"
    for number in range(5):
        await desk.ask("POST", path, json={**ENTRY, "question": f"q{number}"})
    page: dict[str, Any] = await desk.get(path, limit=3)
    rest = await desk.get(path, limit=3, cursor=page["next_cursor"])
    found = [entry["question"] for entry in page["entries"] + rest["entries"]]
    assert found == [f"q{number}" for number in range(5)]
    assert rest["next_cursor"] is None


NOT_AN_ENTRY: list[dict[str, Any]] = [
    {"question": " "},
    {"question": "q" * 501},
    {"question": "two\nlines"},
    {"answer": ""},
    {"answer": "a" * 8001},
    {"answer": "nul\x00"},
    {"keywords": [""]},
    {"keywords": "hours"},
    {"keywords": ["k"] * 51},
    {"keywords": ["k" * 81]},
    {"language": "xx"},
    {"position": 1},
]


async def test_what_an_entry_cannot_be(live_server: Live, site: Site, operators: Database) -> None:
    """Edge case 34: an invalid entry is a 422 that names the location."""
    desk = await make_desk(live_server, operators)
    path = f"/tenants/{site.slug}/knowledge"
    for wrong in NOT_AN_ENTRY:
        answer = await desk.ask("POST", path, json={**ENTRY, **wrong})
        assert answer.status_code == 422, wrong
        assert answer.json()["errors"][0]["loc"][1] == next(iter(wrong))
    assert await desk.get(path) == {"entries": [], "next_cursor": None}
