"""The console's list of unanswered questions, over plain HTTP."""

import html
import re
from uuid import UUID, uuid4

import httpx

from browsers import Browser, make_browser
from factories import Live, Site, make_site
from hlas.knowledge import entries, unanswered
from hlas.knowledge.entries import MOST_WORDINGS, Entry, StoredEntry
from hlas.store.db import Database
from questions import ask_in_vain

PLACES = re.compile(r'name="places" value="([^"]+)"')


def path_of(site: Site, conversation: str = "") -> str:
    return f"/tenants/{site.slug}/unanswered" + (f"/{conversation}.1" if conversation else "")


async def add_entry(operators: Database, site: Site, question: str, **more: object) -> StoredEntry:
    entry = Entry(question, "So.", **more)  # type: ignore[arg-type]  # as the caller says
    return await entries.add(operators, UUID(site.tenant_id), entry)


async def send(browser: Browser, path: str, action: str, **fields: str) -> httpx.Response:
    """Open the page of a group, and send one of its forms."""
    places = PLACES.findall((await browser.get(path)).text)[0]
    return await browser.post(f"{path}/{action}", places=places, **fields)


async def count(operators: Database, site: Site) -> int:
    return await unanswered.count_open(operators, UUID(site.tenant_id))


async def test_one_after_the_other(site: Site, operators: Database) -> None:
    """An answer, a wording and a dismissal: each leads to the next question, then to the list."""
    browser = await make_browser(site.live, operators, site.slug)
    assert "None. Questions appear here" in (await browser.get(path_of(site))).text
    known = await add_entry(operators, site, "When are you open?")
    dismissed = await ask_in_vain(operators, site.tenant_id, "asdf jkl")
    worded = await ask_in_vain(operators, site.tenant_id, "Opening hours?", "none_of_these")
    for _ in range(2):
        last = await ask_in_vain(operators, site.tenant_id, "Do you wrap gifts?", "thumbs_down")
    listed = (await browser.get(path_of(site))).text
    assert 'Unanswered <span class="count">4</span>' in listed
    assert listed.index("Do you wrap gifts?") < listed.index("Opening hours?")
    for said in ("asked twice", "thumbs-down", "“None of these”", "no answer"):
        assert said in listed
    assert f'href="/console/tenants/{site.slug}/conversations/{worded}"' in listed

    first = await send(
        browser, path_of(site, last), "answer", question="Do you wrap gifts?", answer="Always."
    )
    assert first.headers["location"].endswith(f"/{worded}.1?done=answered")
    second = await send(
        browser,
        path_of(site, worded),
        "wordings",
        entry_id=str(known.id),
        added="Opening hours?\n\nSince when?",
    )
    assert second.headers["location"].endswith(f"/{dismissed}.1?done=worded")
    third = await send(browser, path_of(site, dismissed), "dismiss")
    assert third.headers["location"] == f"/console{path_of(site)}?done=dismissed"
    assert await count(operators, site) == 0
    stored = await entries.list_entries(operators, UUID(site.tenant_id))
    assert [(one.question, one.wordings) for one in stored] == [
        ("When are you open?", ("Opening hours?", "Since when?")),
        ("Do you wrap gifts?", ()),
    ]


async def test_what_is_wrong_is_explained(site: Site, operators: Database) -> None:
    """The page is shown again with what was written; the question stays open."""
    browser = await make_browser(site.live, operators, site.slug)
    full = await add_entry(
        operators, site, "Full?", wordings=tuple(f"wording {n}" for n in range(MOST_WORDINGS))
    )
    asked = path_of(site, await ask_in_vain(operators, site.tenant_id, "Do you wrap gifts?"))
    nowhere, mine = str(uuid4()), "mine <b>"
    for action, fields, status, said in (
        ("answer", {"question": mine, "answer": " "}, 422, "This field is required."),
        ("answer", {"question": "Full?", "answer": mine}, 409, "already"),
        ("answer", {"question": mine, "answer": "x", "url": "x"}, 422, "Write an address such as"),
        ("wordings", {"added": mine}, 422, "Choose an entry."),
        ("wordings", {"added": " ", "entry_id": str(full.id)}, 422, "Write at least 1."),
        ("wordings", {"added": mine, "entry_id": str(full.id)}, 409, "wordings"),
        ("wordings", {"added": mine, "entry_id": nowhere}, 404, "has no such entry"),
    ):
        answer = await send(browser, asked, action, **fields)
        assert (answer.status_code, said in answer.text) == (status, True), (action, fields)
        assert html.escape(mine) in answer.text or mine not in fields.values()
    found = await browser.get(f"{asked}?find=wording+7")
    assert str(full.id) in found.text
    assert "Nothing was found." in (await browser.get(f"{asked}?find=nowhere%00")).text
    assert await count(operators, site) == 1


async def test_what_was_resolved_meanwhile(site: Site, operators: Database) -> None:
    """The list says so; an answer that was written is kept; what was asked since stays open."""
    browser = await make_browser(site.live, operators, site.slug)
    asked = path_of(site, await ask_in_vain(operators, site.tenant_id, "Do you wrap gifts?"))
    places = PLACES.findall((await browser.get(asked)).text)[0]
    await ask_in_vain(operators, site.tenant_id, "do you wrap gifts")
    gone = await browser.post(f"{asked}/dismiss", places=places)
    assert gone.status_code == 303
    assert await count(operators, site) == 1
    for action in ("wordings", "dismiss"):
        again = await browser.post(f"{asked}/{action}", places=places)
        assert (again.status_code, "This question is not open" in again.text) == (404, True)
    kept = await browser.post(f"{asked}/answer", places=places, question="Q?", answer="My work.")
    assert (kept.status_code, "My work." in kept.text) == (404, True)
    assert "nothing is saved yet" in kept.text
    assert (await browser.get(asked)).status_code == 404
    assert await entries.list_entries(operators, UUID(site.tenant_id)) == []


async def test_other_tenants(live_server: Live, operators: Database) -> None:
    """Another tenant's questions and entries are as if they did not exist."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    mine = path_of(own, await ask_in_vain(operators, own.tenant_id, "Do you wrap gifts?"))
    theirs = await ask_in_vain(operators, other.tenant_id, "A secret question")
    entry = await add_entry(operators, other, "A secret entry")
    browser = await make_browser(live_server, operators, own.slug)
    for path in (path_of(own, theirs), path_of(other, theirs), path_of(other)):
        assert (await browser.get(path)).status_code == 404
    for action in ("answer", "wordings", "dismiss"):
        answer = await browser.post(
            f"{path_of(own, theirs)}/{action}", places=f"{theirs}.1", question="Q", answer="A"
        )
        assert (answer.status_code, "secret" in answer.text) == (404, False)
    attached = await send(browser, mine, "wordings", entry_id=str(entry.id), added="x")
    assert (attached.status_code, "secret" in attached.text) == (404, False)
    both = await browser.post(f"{mine}/dismiss", places=f"{mine.rpartition('/')[2]} {theirs}.1")
    assert both.status_code == 303
    assert (await count(operators, own), await count(operators, other)) == (0, 1)
    assert (await entries.find_entry(operators, UUID(other.tenant_id), entry.id)).wordings == ()
