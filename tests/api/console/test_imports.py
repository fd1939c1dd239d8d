"""Imports at the console, over plain HTTP: read, preview, save, refresh, remove."""

import re
from html import unescape
from uuid import UUID, uuid4

import pytest

from browsers import Browser, make_browser
from factories import Live, Site, make_site
from hlas.api.console import imports
from hlas.http import multipart
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.knowledge.imports import sources
from hlas.store.db import Database
from web_servers import web_server

SEALED = re.compile(r'name="sealed" value="([^"]+)"')
TAKES = re.compile(r'name="(take[^"]+)" checked')
HELP = """<details><summary>Do you deliver?</summary><p>Yes, everywhere.</p></details>
<details><summary>May I pay by card?</summary><p>{}</p></details>"""


def path_of(site: Site, part: str = "") -> str:
    return f"/tenants/{site.slug}/knowledge{part}"


def help_page(text: str = "By every card.") -> tuple[str, bytes]:
    return "help.html", HELP.format(text).encode()


async def questions_of(operators: Database, site: Site) -> dict[str, str]:
    stored = await entries.list_entries(operators, UUID(site.tenant_id))
    return {one.question: one.answer for one in stored}


async def preview(browser: Browser, site: Site, *files: tuple[str, bytes], **fields: str) -> str:
    answer = await browser.upload(path_of(site, "/preview"), *files, **fields)
    assert (answer.status_code, answer.text.endswith("</html>")) == (200, True)
    return unescape(answer.text)


async def save(browser: Browser, site: Site, page: str, *left_out: str) -> str:
    taken = {name: "on" for name in TAKES.findall(page) if name not in left_out}
    sealed = SEALED.findall(page)[0]
    answer = await browser.post(path_of(site, "/import"), sealed=sealed, **taken)
    assert answer.status_code == 200
    return answer.text


async def test_nothing_is_saved_before_it_was_seen(site: Site, operators: Database) -> None:
    """Documents are read and shown; what is ticked is saved, what cannot be read says why."""
    browser = await make_browser(site.live, operators, site.slug)
    await entries.add(operators, UUID(site.tenant_id), Entry("Do you deliver?", "Mine stays."))
    page = await preview(
        browser, site, help_page(), ("own.csv", b"question,answer\nNew?,Yes."), ("a.exe", b"MZ")
    )
    for said in ("Reading help.html…", "New: 1", "Same question in another entry, kept: 1"):
        assert said in page, said
    assert "<strong>a.exe</strong>: Only .html" in page
    assert "Now: Mine stays." in page
    assert list(await questions_of(operators, site)) == ["Do you deliver?"]
    assert "help.html: 1 added" in await save(browser, site, page, "take.1.0")
    assert await questions_of(operators, site) == {
        "Do you deliver?": "Mine stays.",
        "May I pay by card?": "By every card.",
    }
    changed = await preview(browser, site, help_page("By none."))
    assert "Changed: 1" in changed
    assert "Before: By every card." in changed
    assert "1 updated" in await save(browser, site, changed)
    same = await preview(browser, site, help_page("By none."))
    assert "Unchanged: 1" in same
    assert (await questions_of(operators, site))["May I pay by card?"] == "By none."


@pytest.mark.settings(outbound_private_hosts="127.0.0.1")
async def test_a_page_from_its_import_to_its_removal(site: Site, operators: Database) -> None:
    """An address is read, refreshed and removed; a failure changes nothing."""
    pages = {"/faq": help_page()[1]}
    browser = await make_browser(site.live, operators, site.slug)

    def answer(handler: object) -> tuple[int, list[tuple[str, str]], bytes]:
        body = pages.get(handler.path)  # type: ignore[attr-defined]  # of http.server
        return (200 if body else 500), [("Content-Type", "text/html")], body or b""

    with web_server(answer) as url:
        page = await preview(browser, site, address=f"{url}/faq")
        assert f"Reading {url}/faq…" in page
        assert "2 added" in await save(browser, site, page)
        [source] = await sources.list_sources(operators, UUID(site.tenant_id))
        assert f"{url}/faq" in (await browser.get(path_of(site))).text
        refresh = path_of(site, f"/sources/{source.id}/refresh")
        pages["/faq"] = help_page("By none.")[1]
        assert "0 added, 1 updated" in (await browser.post(refresh)).text
        assert "no changes" in (await browser.post(refresh)).text
        del pages["/faq"]
        assert "Not read:" in (await browser.post(refresh)).text
    assert len(await questions_of(operators, site)) == 2
    removed = await browser.post(path_of(site, f"/sources/{source.id}/remove"))
    assert removed.headers["location"] == f"/console{path_of(site)}?done=removed"
    assert await questions_of(operators, site) == {}


async def test_bad_forms(
    live_server: Live, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing chosen, private addresses, and previews of others or that were changed: refused."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    browser = await make_browser(live_server, operators)
    empty = await browser.upload(path_of(own, "/preview"))
    assert (empty.status_code, "Choose a document or write" in empty.text) == (422, True)
    many = await browser.upload(path_of(own, "/preview"), *[help_page()] * 21)
    assert (many.status_code, "at most 20 documents" in many.text) == (422, True)
    page = await preview(browser, own, address="127.0.0.1/faq")
    assert "It is not at a public address." in page
    assert "Nothing could be read" in page
    page = await preview(browser, own, help_page())
    sealed = SEALED.findall(page)[0]
    for site, text in ((other, sealed), (own, sealed[:-2] + "AA"), (own, ""), (own, "é.é")):
        refused = await browser.post(path_of(site, "/import"), sealed=text, **{"take.0.0": "on"})
        assert refused.status_code == 403, text
    stranger = await make_browser(live_server, operators)
    assert (await stranger.post(path_of(own, "/import"), sealed=sealed)).status_code == 403
    for part in ("refresh", "remove"):
        gone = await browser.post(path_of(own, f"/sources/{uuid4()}/{part}"))
        assert gone.status_code == 404
    broken = await browser.client.post(
        f"/console{path_of(own, '/preview')}",
        content=b"--x\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    assert broken.status_code == 422
    # More than is shown is saved all unchanged.
    monkeypatch.setattr(imports, "MOST_SHOWN", 1)
    page = await preview(browser, own, help_page())
    assert "1 more are saved, too" in page
    assert "2 added" in await save(browser, own, page)
    assert await questions_of(operators, other) == {}


async def test_over_the_limit(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is saved, and the preview is shown again with what was chosen."""
    browser = await make_browser(site.live, operators, site.slug)
    page = await preview(browser, site, help_page())
    monkeypatch.setattr(entries, "MOST_ENTRIES", 0)
    full = await browser.post(
        path_of(site, "/import"), sealed=SEALED.findall(page)[0], **{"take.0.1": "on"}
    )
    assert full.status_code == 409
    assert TAKES.findall(full.text) == ["take.0.1"]
    assert await questions_of(operators, site) == {}
    monkeypatch.undo()
    assert "1 added" in await save(browser, site, full.text)


def test_forms_with_files() -> None:
    """As browsers send them; anything else is refused."""
    part = 'Content-Disposition: form-data; name="{}"{}\r\n\r\n'
    body = "".join(
        f"--b c\r\n{part.format(name, more)}{data}\r\n"
        for name, more, data in (
            ("a", "", "1\r\n--b"),
            ("f", '; filename="x%22 name=.txt"\r\nContent-Type: text/plain', "\r\n\r\n"),
            ("f", '; filename=""', ""),
        )
    )
    kind = 'multipart/form-data; boundary="b c"'
    fields, files = multipart.parse(f"{body}--b c--\r\n".encode(), kind, 3)
    assert fields == [("a", "1\r\n--b")]
    assert [(one.field, one.name, one.data) for one in files] == [
        ("f", 'x" name=.txt', b"\r\n\r\n")
    ]
    for wrong, most in ((body, 3), (f"{body}--b c--", 2), (f"x{body}--b c--", 3), ("", 3)):
        with pytest.raises(ValueError, match=r"not a form"):
            multipart.parse(wrong.encode(), kind, most)
    for wrong in ("--b c\r\nX: y\r\n\r\n\r\n--b c--", f"--b c\r\n{part[:-2]}\r\n--b c--"):
        with pytest.raises(ValueError, match=r"a part without"):
            multipart.parse(wrong.encode(), kind, 3)
    with pytest.raises(ValueError, match=r"no boundary"):
        multipart.parse(body.encode(), "multipart/form-data", 3)
