"""`hlas knowledge import`, `refresh`, `sources` and `remove-source` on the command line."""

import asyncio
import os
import pty
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from documents import Line, make_docx, make_pdf, paragraph, table
from hlas.knowledge import entries
from hlas.store.db import Database
from hlas.tenants import tenants
from websites import Website, make_page, make_sitemap, open_website

COMMAND = (sys.executable, "-c", "from hlas.cli import main; main()", "knowledge")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs commands for the tenant `shop`; one website on loopback is allowed."""

    def __init__(self, database_url: str, website: Website | None = None) -> None:
        self._environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "WIDGET_SESSION_JWT_SECRET": "a secret for tests that is long enough",
            "OUTBOUND_PRIVATE_HOSTS": website.host if website else "",
        }

    async def run(self, *arguments: str, stdin: int = asyncio.subprocess.DEVNULL) -> Outcome:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, *arguments, "--tenant", "shop"),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        out, err = await process.communicate()
        return Outcome(process.returncode or 0, out.decode(), err.decode())

    async def answer(self, reply: str, *arguments: str) -> Outcome:
        """Run a command at a terminal, and type a reply."""
        person, terminal = pty.openpty()
        try:
            os.write(person, f"{reply}\n".encode())
            return await self.run(*arguments, stdin=terminal)
        finally:
            os.close(person)
            os.close(terminal)


async def count_all(operators: Database, tenant_id: Any) -> tuple[int, int]:
    counts = await entries.count_entries(operators, tenant_id)
    return counts.answers, counts.passages


async def test_files(database_url: str, operators: Database, tmp_path: Path) -> None:
    """Documents are shown before they are saved, and saved after a confirmation or with --yes."""
    shop = (await tenants.add(operators, "Shop", "shop", [])).id
    shell = Shell(database_url)
    (tmp_path / "faq.html").write_text(make_page("FAQ", ("When?", "Always open.")), "utf-8")
    pdf = make_pdf([[Line(60, 800, "Jak se máte?"), Line(60, 780, "Děkujeme, dobře.")]])
    (tmp_path / "letak.pdf").write_bytes(pdf)
    rows = table(["Otázka", "Odpověď"], ["Kolik?", "Sto."])
    text = paragraph("Vyrábíme nábytek z masivu už od roku 1992.")
    (tmp_path / "cenik.docx").write_bytes(make_docx(text, rows))
    (tmp_path / "mine.md").write_text("## Where?\nHere.\n", "utf-8")
    files = [str(tmp_path / one) for one in ("faq.html", "letak.pdf", "cenik.docx", "mine.md")]

    refused = await shell.run("import", *files)
    assert refused.code == 1
    assert refused.err == "hlas: nothing was saved; --yes saves without asking\n"
    assert refused.out == (
        "faq.html: 1 new, 0 changed, 0 removed, 0 unchanged, 0 kept\n"
        "  + answer   When?\n"
        "             Always open.\n"
        "letak.pdf: 1 new, 0 changed, 0 removed, 0 unchanged, 0 kept\n"
        "  + answer   Jak se máte?\n"
        "             Děkujeme, dobře.\n"
        "cenik.docx: 2 new, 0 changed, 0 removed, 0 unchanged, 0 kept\n"
        "  + passage  cenik\n"
        "             Vyrábíme nábytek z masivu už od roku 1992.\n"
        "  + answer   Kolik?\n"
        "             Sto.\n"
        "mine.md: 1 new, 0 changed, 0 removed, 0 unchanged, 0 kept\n"
        "  + answer   Where?\n"
        "             Here.\n"
    )
    assert (await shell.answer("n", "import", files[0])).code == 1
    shown = await shell.run("import", files[0], "--json")
    assert (shown.code, orjson.loads(shown.out)["saved"]) == (1, False)
    assert await count_all(operators, shop) == (0, 0)
    saved = await shell.answer("y", "import", *files)
    assert (saved.code, saved.err) == (0, "Save this? [y/N]:")
    assert await count_all(operators, shop) == (4, 1)
    again = await shell.run("import", files[1], "--yes", "--json")
    [source] = orjson.loads(again.out)["sources"]
    assert (again.code, source["location"]) == (0, "letak.pdf")
    assert [item["state"] for item in source["items"]] == ["unchanged"]


async def test_errors(database_url: str, operators: Database, tmp_path: Path) -> None:
    """What cannot be read is one line and exit status 1, and nothing is saved of the rest."""
    shop = (await tenants.add(operators, "Shop", "shop", [])).id
    shell = Shell(database_url)
    good, bad = tmp_path / "good.html", tmp_path / "bad.pdf"
    good.write_text(make_page("FAQ", ("When?", "Always.")), "utf-8")
    bad.write_bytes(b"%PDF-1.4 nothing")
    for arguments, told in (
        ((str(good), str(bad)), "bad.pdf: not a readable PDF file; it may be damaged"),
        ((str(tmp_path),), f"{tmp_path}: Is a directory"),
        ((str(tmp_path / "no.pdf"),), f"{tmp_path}/no.pdf: No such file or directory"),
        (("http://127.0.0.1:9/",), "http://127.0.0.1:9/: it is not at a public address"),
        (("--site", "nothing at all"), "nothing at all: it is not the address of a page"),
        ((str(good), "--replace"), "--replace is for Markdown and CSV files"),
        ((), "name a file, an address or --site URL"),
    ):
        outcome = await shell.run("import", *arguments, "--yes")
        assert (outcome.code, outcome.out) == (1, ""), arguments
        assert outcome.err.startswith(f"hlas: {told}")
        assert outcome.err.count("\n") == 1
    assert await count_all(operators, shop) == (0, 0)


async def test_site(database_url: str, operators: Database) -> None:
    """A site is read, listed, refreshed and removed; an error of one source is not that of all."""
    shop = (await tenants.add(operators, "Shop", "shop", [])).id
    async with open_website() as website:
        shell = Shell(database_url, website)
        urls = [f"{website.url}/{name}" for name in ("a", "b")]
        website.pages |= {
            "/sitemap.xml": make_sitemap(*urls),
            "/a": make_page("A", ("What is A?", "A letter.")),
            "/b": make_page("B", ("What is B?", "A letter.")),
            "/page": make_page("Page", ("Where?", "Here.")),
        }
        site = f"{website.url}/sitemap.xml"
        saved = await shell.run("import", f"{website.url}/page", "--site", site, "--yes")
        assert saved.out.endswith(
            f"{website.url}/page: 1 added, 0 updated, 0 removed, 0 unchanged, 0 kept.\n"
            f"{site}: 2 added, 0 updated, 0 removed, 0 unchanged, 0 kept.\n"
        )
        website.pages |= {"/a": make_page("A", ("What is A?", "The first letter.")), "/b": 404}
        del website.pages["/page"]
        refreshed = await shell.run("refresh")
        assert refreshed == (
            0,
            (
                f"{website.url}/page: 0 added, 0 updated, 1 removed, 0 unchanged, 0 kept.\n"
                f"  ! {website.url}/page: it does not exist (status 404)\n"
                f"{site}: 0 added, 1 updated, 1 removed, 0 unchanged, 0 kept.\n"
                f"  ! {website.url}/b: it answers with status 404\n"
            ),
            "",
        )
        website.pages["/sitemap.xml"] = 500
        failed = await shell.run("refresh", "--json")
        assert (failed.code, failed.err) == (1, "hlas: 1 of 2 sources could not be refreshed\n")
        first, second = orjson.loads(failed.out)
        assert (first["error"], second["error"]) == ("", f"{site}: it answers with status 500")
        listed = await shell.run("sources", "--json")
        assert [one["entries"] for one in orjson.loads(listed.out)] == [0, 1]
        assert await count_all(operators, shop) == (1, 0)
        removed = await shell.run("remove-source", site)
        assert removed == (0, f"Removed {site} with 1 entries.\n", "")
        assert (await shell.run("remove-source", site)).err == f"hlas: there is no source {site}\n"
