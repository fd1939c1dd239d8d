"""The console's page of a tenant's knowledge, over plain HTTP."""

import re
from uuid import UUID

import pytest

from browsers import make_browser
from factories import Site
from hlas.api.console.knowledge import PAGE
from hlas.api.console.pages import describe_likelihood
from hlas.knowledge import entries, files
from hlas.knowledge.entries import Entry
from hlas.store.db import Database

LISTED = re.compile(r'<li class="entry">\s*<a [^>]*><strong>([^<]*)')


async def test_search_pages_and_kinds(site: Site, operators: Database) -> None:
    """All words must occur, accents or not; pages follow each other and keep the search."""
    browser = await make_browser(site.live, operators, site.slug)
    rows = [Entry(f"Dárek {n:03}?", "Ano.") for n in range(PAGE + 1)]
    rows += [Entry("Hours", "From nine.", kind="passage"), Entry("Other?", "Nothing.")]
    await entries.save(operators, UUID(site.tenant_id), rows, source="test")
    path = f"/tenants/{site.slug}/knowledge"
    first = (await browser.get(f"{path}?find=DAREK+ano")).text
    assert LISTED.findall(first) == [row.question for row in rows[:PAGE]]
    onward = re.findall(r'href="/console([^"]*find=DAREK[^"]*after=[^"]*)"', first)[0]
    second = (await browser.get(onward.replace("&amp;", "&"))).text
    assert LISTED.findall(second) == [rows[PAGE].question]
    assert LISTED.findall((await browser.get(f"{path}?kind=passage")).text) == ["Hours"]
    assert LISTED.findall((await browser.get(f"{path}?find=nine+%00&kind=x")).text) == ["Hours"]
    none = (await browser.get(f"{path}?find=nowhere&source=x")).text
    assert LISTED.findall(none) == []
    assert "0 found." in none
    assert f"{PAGE + 2} answers" in none


async def test_an_entry_keeps_all_its_parts(site: Site, operators: Database) -> None:
    """Wordings, page and kind are written, changed and shown; an export has them."""
    browser = await make_browser(site.live, operators, site.slug)
    path = f"/tenants/{site.slug}/knowledge"
    whole = {
        "question": "Open?",
        "answer": "At nine.",
        "wordings": "When?\r\n\r\n From when? ",
        "keywords": "hours, time",
        "url": "https://shop.example/hours",
        "language": "en",
    }
    assert (await browser.post(path, **whole)).status_code == 303
    [stored] = await entries.list_entries(operators, UUID(site.tenant_id))
    assert stored.wordings == ("When?", "From when?")
    page = (await browser.get(f"{path}/{stored.id}")).text
    assert "When?\nFrom when?" in page
    whole |= {"kind": "passage", "wordings": "When?", "revision": stored.revision}
    assert (await browser.post(f"{path}/{stored.id}", **whole)).status_code == 303
    [stored] = await entries.list_entries(operators, UUID(site.tenant_id))
    assert (stored.kind, stored.wordings, stored.url) == ("passage", ("When?",), whole["url"])
    for form in ("md", "csv"):
        export = await browser.get(f"{path}/export?form={form}")
        assert f'filename="{site.slug}-knowledge.{form}"' in export.headers["content-disposition"]
        assert files.parse(f"x.{form}", export.content) == [stored.entry]
    assert (await browser.get(f"{path}/export?form=exe")).status_code == 404


async def test_what_a_visitor_would_see(site: Site, operators: Database) -> None:
    """An answer, small talk apart; without one the tenant's own fallback in that language."""
    browser = await make_browser(site.live, operators, site.slug)
    path = f"/tenants/{site.slug}/knowledge"
    added = Entry("Do you deliver to Slovakia?", "For ten euros.")
    await entries.add(operators, UUID(site.tenant_id), added)
    await operators.execute(
        'update tenants set fallback_texts = \'{"cs": "Nevime."}\' where slug = $1', site.slug
    )
    sure = (await browser.get(f"{path}?ask=Do+you+deliver+to+Slovakia%3F")).text
    assert '<div class="answer bubble" dir="auto">For ten euros.</div>' in sure
    assert "Almost certain to be right." in sure
    nothing = (await browser.get(f"{path}?ask=Prodáváte+také+sekačky+na+trávu%3F")).text
    assert '<div class="answer bubble" dir="auto">Nevime.</div>' in nothing
    assert "The fallback answer is sent." in nothing


@pytest.mark.parametrize(
    ("confidence", "words"),
    [(1.0, "Almost certain"), (0.7, "Very likely"), (0.69, "Likely"), (0.2, "Possible")],
)
def test_confidence_in_words(confidence: float, words: str) -> None:
    """Each word begins at its least probability."""
    assert describe_likelihood(confidence) == words
    assert describe_likelihood(0.19) == "Unlikely"
