"""What is saved of a source, at first and when it is read again."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from hlas.errors import NotRefreshable, SourceNotFound, TooManyEntries, TooManySources
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry, StoredEntry
from hlas.knowledge.imports import CrawlLimits, refresh, sources
from hlas.knowledge.imports.reading import Reading
from hlas.knowledge.imports.sources import Imported, Part
from hlas.store.db import Database
from hlas.tenants import tenants
from websites import make_page, open_website

PAGE = "https://shop.example/faq"
SITE = "https://shop.example/"


def make_reading(**pairs: str) -> Reading:
    found = tuple(Entry(f"{name}?", answer, url=PAGE) for name, answer in pairs.items())
    return Reading("page", PAGE, None, found)


async def add_tenant(operators: Database, slug: str = "shop") -> UUID:
    return (await tenants.add(operators, slug.title(), slug, [])).id


async def save(operators: Database, tenant_id: UUID, reading: Reading, *chosen: str) -> Imported:
    [imported] = await sources.save(
        operators, tenant_id, [Part(reading, frozenset(chosen) if chosen else None)]
    )
    return imported


async def answers_of(operators: Database, tenant_id: UUID) -> dict[str, str]:
    return {one.question: one.answer for one in await entries.list_entries(operators, tenant_id)}


async def states_of(operators: Database, tenant_id: UUID, reading: Reading) -> dict[str, str]:
    [found] = await sources.preview(operators, tenant_id, [reading])
    return {item.key: item.state for item in found.items}


async def find(operators: Database, tenant_id: UUID, question: str) -> StoredEntry:
    listed = await entries.list_entries(operators, tenant_id)
    return next(one for one in listed if one.question == question)


async def edit(operators: Database, tenant_id: UUID, which: str, **changes: object) -> StoredEntry:
    old = await find(operators, tenant_id, which)
    entry = replace(old.entry, **changes)  # type: ignore[arg-type]  # fields of an entry
    return await entries.update(operators, tenant_id, old.id, entry)


async def test_preview_saves_nothing(operators: Database) -> None:
    """A preview says what would be saved, and saving does exactly that."""
    shop = await add_tenant(operators)
    await entries.add(operators, shop, Entry("Taken?", "By hand."))
    await entries.add(operators, shop, Entry("Same?", "The same."))
    reading = make_reading(New="1", Taken="2", Same="The same.")
    assert await states_of(operators, shop, reading) == {
        "New?": "new",
        "Taken?": "taken",
        "Same?": "unchanged",
    }
    assert await sources.list_sources(operators, shop) == []
    imported = await save(operators, shop, reading)
    assert imported == Imported(PAGE, added=1, unchanged=1, kept=1)
    assert await answers_of(operators, shop) == {
        "Taken?": "By hand.",
        "Same?": "The same.",
        "New?": "1",
    }
    [source] = await sources.list_sources(operators, shop)
    assert (source.kind, source.location, source.entries) == ("page", PAGE, 1)


async def test_read_again(operators: Database) -> None:
    """Changed entries are updated, removed ones go; what people changed stays."""
    shop = await add_tenant(operators)
    first = make_reading(Stays="1", Changes="1", Goes="1", Edited="1", Reworded="1", Removed="1")
    await save(operators, shop, first)
    await edit(operators, shop, "Changes?", wordings=("Other words?",), keywords=("word",))
    await edit(operators, shop, "Edited?", answer="Mine.")
    await edit(operators, shop, "Reworded?", question="In my words?")
    removed = await find(operators, shop, "Removed?")
    await entries.remove_entry(operators, shop, removed.id)
    second = make_reading(Stays="1", Changes="2", Edited="2", Reworded="2", Removed="2", Added="2")
    assert await states_of(operators, shop, second) == {
        "Stays?": "unchanged",
        "Changes?": "changed",
        "Edited?": "edited",
        "Reworded?": "edited",
        "Removed?": "left_out",
        "Added?": "new",
        "Goes?": "removed",
    }
    imported = await save(operators, shop, second)
    assert imported == Imported(PAGE, added=1, updated=1, removed=1, unchanged=1, kept=2)
    assert await answers_of(operators, shop) == {
        "Stays?": "1",
        "Changes?": "2",
        "Edited?": "Mine.",
        "In my words?": "1",
        "Added?": "2",
    }
    changed = await find(operators, shop, "Changes?")
    assert (changed.wordings, changed.keywords) == (("Other words?",), ("word",))
    again = await save(operators, shop, second)
    assert again == Imported(PAGE, unchanged=3, kept=2)


async def test_choices_are_remembered(operators: Database) -> None:
    """Who does not take a change keeps the old text, also the next time; taking it later works."""
    shop = await add_tenant(operators)
    await save(operators, shop, make_reading(A="1", B="1"))
    second = make_reading(A="2", B="2", C="2")
    imported = await save(operators, shop, second, "B?")
    assert imported == Imported(PAGE, updated=1, kept=1)
    assert await answers_of(operators, shop) == {"A?": "1", "B?": "2"}
    assert await states_of(operators, shop, second) == {
        "A?": "edited",
        "B?": "unchanged",
        "C?": "left_out",
    }
    assert (await save(operators, shop, second)).is_change is False
    await save(operators, shop, second, "A?", "C?")
    assert await answers_of(operators, shop) == {"A?": "2", "B?": "2", "C?": "2"}
    assert set((await states_of(operators, shop, second)).values()) == {"unchanged"}


async def test_pages_that_were_not_read(operators: Database) -> None:
    """Entries of a page that could not be read stay, also where another page has the same name."""
    shop = await add_tenant(operators)
    a, b = (Entry("Hours", f"Of {one}.", kind="passage", url=f"{SITE}{one}") for one in "ab")
    named = replace(b, question="B \u2013 Hours")
    price = Entry("Price?", "1", url=f"{SITE}a")
    both = frozenset({f"{SITE}a", f"{SITE}b"})
    first = Reading("site", SITE, None, (a, named, price), covered=both)
    await save(operators, shop, first)
    # Now without page a, whose heading and question are free for b.
    other = replace(price, answer="2", url=b.url)
    partial = Reading("site", SITE, None, (b, other), covered=frozenset({b.url}))
    await save(operators, shop, partial)
    found = await answers_of(operators, shop)
    assert found == {"Hours": "Of a.", "Price?": "1", "Hours (shop.example/b)": "Of b."}
    await save(operators, shop, first)
    assert await answers_of(operators, shop) == {
        "Hours": "Of a.",
        "Price?": "1",
        "B \u2013 Hours": "Of b.",
    }
    gone = Reading("site", SITE, None, (named,), covered=both)
    await save(operators, shop, gone)
    assert await answers_of(operators, shop) == {"B \u2013 Hours": "Of b."}


async def test_all_or_nothing(operators: Database) -> None:
    """When one of several sources is over a limit, none of them is saved."""
    shop = await add_tenant(operators)
    few = make_reading(A="1")
    most = tuple(Entry(f"{number}?", "x") for number in range(entries.MOST_ENTRIES))
    many = Reading("file", "many.html", None, most)
    with pytest.raises(TooManyEntries):
        await sources.save(operators, shop, [Part(few), Part(many)])
    assert await answers_of(operators, shop) == {}
    assert await sources.list_sources(operators, shop) == []
    await sources.save(operators, shop, [Part(many)])
    assert len(await answers_of(operators, shop)) == entries.MOST_ENTRIES


async def test_most_sources(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant has a bounded number of sources; those it has can still be read again."""
    monkeypatch.setattr(sources, "MOST_SOURCES", 1)
    shop = await add_tenant(operators)
    await save(operators, shop, make_reading(A="1"))
    with pytest.raises(TooManySources):
        await save(operators, shop, replace(make_reading(B="1"), location=f"{PAGE}2"))
    await save(operators, shop, make_reading(A="2"))
    assert await answers_of(operators, shop) == {"A?": "2"}


async def test_two_at_once(operators: Database) -> None:
    """Imports of the same source at the same time are saved one after the other."""
    shop = await add_tenant(operators)
    readings = [make_reading(A=str(number), B="1") for number in range(4)]
    done = await asyncio.gather(*(save(operators, shop, one) for one in readings))
    assert sorted(one.added for one in done) == [0, 0, 0, 2]
    assert sorted(one.updated for one in done) == [0, 1, 1, 1]
    [source] = await sources.list_sources(operators, shop)
    assert source.entries == 2


async def test_own_files(operators: Database) -> None:
    """A Markdown or CSV file is a person's text: it replaces what is there, without a source."""
    shop = await add_tenant(operators)
    await save(operators, shop, make_reading(A="1", B="1"))
    mine = Reading("file", "faq.md", None, (Entry("A?", "Mine."), Entry("C?", "Mine.")))
    assert await save(operators, shop, mine) == Imported("faq.md", added=1, updated=1)
    assert len(await sources.list_sources(operators, shop)) == 1
    assert await states_of(operators, shop, make_reading(A="2", B="1")) == {
        "A?": "edited",
        "B?": "unchanged",
    }


async def test_remove_source(operators: Database) -> None:
    """A source goes with its entries; what people have edited stays, as theirs."""
    shop = await add_tenant(operators)
    await save(operators, shop, make_reading(A="1", B="1", C="1"))
    await edit(operators, shop, "B?", answer="Mine.")
    assert await sources.remove_source(operators, shop, PAGE) == 2
    assert await answers_of(operators, shop) == {"B?": "Mine."}
    assert (await find(operators, shop, "B?")).source_id is None
    with pytest.raises(SourceNotFound):
        await sources.remove_source(operators, shop, PAGE)


async def test_other_tenants(operators: Database) -> None:
    """Another tenant's source is not found, and an import changes nothing of others."""
    shop, other = await add_tenant(operators), await add_tenant(operators, "other")
    await save(operators, other, make_reading(A="Theirs."))
    [theirs] = await sources.list_sources(operators, other)
    for name in (str(theirs.id), PAGE, str(uuid4()), "x"):
        with pytest.raises(SourceNotFound):
            await sources.find_source(operators, shop, name)
        with pytest.raises(SourceNotFound):
            await sources.remove_source(operators, shop, name)
    await save(operators, shop, make_reading(A="Ours."))
    assert await answers_of(operators, other) == {"A?": "Theirs."}


async def refresh_all(operators: Database, tenant_id: UUID, host: str) -> list[object]:
    """What was imported, or why not, of each source."""
    listed = await sources.list_sources(operators, tenant_id)
    done = [await refresh.refresh(operators, tenant_id, one, [host]) for one in listed]
    return [one.imported or one.error for one in done]


async def test_refresh(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh takes what has changed; a site that does not answer loses nothing."""
    monkeypatch.setattr(refresh, "CrawlLimits", lambda: CrawlLimits(pause=0))
    shop = await add_tenant(operators)
    async with open_website() as website:
        website.pages["/"] = make_page("Home", ("When?", "Always."), links=("/a",))
        website.pages["/a"] = make_page("A", ("Where?", "Here."))
        site = f"{website.url}/"
        await save(operators, shop, Reading("site", site, None, ()))
        [done] = await refresh_all(operators, shop, website.host)
        assert done == Imported(site, added=2)
        events = await operators.all("select action from events where action like 'knowledge.%'")
        [same] = await refresh_all(operators, shop, website.host)
        assert same == Imported(site, unchanged=2)
        assert events == await operators.all(
            "select action from events where action like 'knowledge.%'"
        )
        website.pages["/"] = make_page("Home", ("When?", "At noon."))
        del website.pages["/a"]
        [done] = await refresh_all(operators, shop, website.host)
        assert done == Imported(site, updated=1, removed=1)
        website.pages["/"] = 500
        [error] = await refresh_all(operators, shop, website.host)
        assert error == f"{site}: it answers with status 500"
        [error] = await refresh_all(operators, shop, "")
        assert error == f"{site}: it is not at a public address"
    assert await answers_of(operators, shop) == {"When?": "At noon."}


async def test_files_cannot_be_refreshed(operators: Database) -> None:
    """Nothing can be fetched again of a file."""
    shop = await add_tenant(operators)
    await save(operators, shop, Reading("file", "a.pdf", None, (Entry("A?", "1"),)))
    [source] = await sources.list_sources(operators, shop)
    with pytest.raises(NotRefreshable, match=r"^a.pdf: a file cannot be refreshed"):
        await refresh.make_job(operators, shop, source, CrawlLimits())
