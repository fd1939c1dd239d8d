"""`hlas knowledge` on the command line: output and exit status."""

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import orjson

from hlas.knowledge import entries
from hlas.store.db import Database
from hlas.tenants import tenants
from questions import ask_in_vain


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


async def hlas(database_url: str, *arguments: str) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from hlas.cli import main; main()", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "DATABASE_URL": database_url,
            "WIDGET_SESSION_JWT_SECRET": "a secret for tests that is long enough",
        },
    )
    out, err = await process.communicate()
    return Outcome(process.returncode or 0, out.decode(), err.decode())


async def test_import_list_remove(database_url: str, operators: Database, tmp_path: Path) -> None:
    """Entries of a file are imported, listed with their ids, and removed by their ids."""
    await tenants.add(operators, "Shop", "shop", [])
    file = tmp_path / "faq.csv"
    file.write_text("question;answer\nKdy máte otevřeno?;Denně.\nKde jste?;Na náměstí.\n", "utf-8")
    imported = await hlas(
        database_url, "knowledge", "import", str(file), "--tenant", "shop", "--language", "cs"
    )
    assert imported == (0, "shop: 2 added, 0 updated, 0 unchanged, 0 removed.\n", "")
    listed = await hlas(database_url, "knowledge", "list", "--tenant", "shop", "--json")
    found = orjson.loads(listed.out)
    assert [(one["question"], one["language"]) for one in found] == [
        ("Kdy máte otevřeno?", "cs"),
        ("Kde jste?", "cs"),
    ]
    removed = await hlas(
        database_url, "knowledge", "remove", found[0]["id"], "--tenant", "shop", "--json"
    )
    assert orjson.loads(removed.out) == {"removed": [found[0]["id"]]}
    rest = await hlas(database_url, "knowledge", "list", "shop")
    assert rest.out == f"{found[1]['id']}  cs   answer   Kde jste?\n"


async def test_errors_are_one_line(database_url: str, operators: Database, tmp_path: Path) -> None:
    """An invalid or missing file, an unknown tenant or an unknown id is one line, exit status 1."""
    await tenants.add(operators, "Shop", "shop", [])
    bad, good = tmp_path / "bad.md", tmp_path / "good.md"
    bad.write_text("## fine\nyes\n## question without an answer\n", "utf-8")
    good.write_text("## fine\nyes\n", "utf-8")
    nobody = "00000000-0000-4000-8000-000000000000"
    for arguments, told in (
        (("import", str(bad), "--tenant", "shop"), "bad.md, line 3: the answer is empty"),
        (("import", str(tmp_path / "no.md"), "--tenant", "shop"), "No such file"),
        (("import", str(good), "--tenant", "none"), "there is no tenant 'none'"),
        (("list",), "name the tenant"),
        (("list", "shop", "--tenant", "other"), "name one tenant"),
        (("remove", nobody, "--tenant", "shop"), f"there is no entry {nobody}"),
    ):
        outcome = await hlas(database_url, "knowledge", *arguments)
        assert outcome.code == 1
        assert outcome.out == ""
        assert outcome.err.startswith("hlas: ")
        assert told in outcome.err
        assert outcome.err.count("\n") == 1
    row = await operators.one("select count(*) as n from knowledge")
    assert row is not None
    assert row["n"] == 0


async def test_unanswered(database_url: str, operators: Database) -> None:
    """Unanswered questions are listed in groups, answered, added to an entry and dismissed."""
    shop = await tenants.add(operators, "Shop", "shop", [])
    for text in ("Sauna?", "Is there a sauna?", "Is there a pool?", "asdf"):
        await ask_in_vain(operators, str(shop.id), text)

    async def ask(*arguments: str) -> Outcome:
        return await hlas(database_url, "knowledge", "unanswered", *arguments)

    listed = await ask("list", "--tenant", "shop", "--json")
    sauna, nonsense, pool = orjson.loads(listed.out)
    assert (sauna["question"], sauna["count"]) == ("Is there a sauna?", 2)
    empty = await ask("answer", sauna["id"], " ", "--tenant", "shop")
    assert empty == (1, "", "hlas: a text has 1 to 8000 characters here, not 0\n")
    answered = await ask("answer", sauna["id"], "Yes.", "--tenant", "shop", "--json")
    entry_id = orjson.loads(answered.out)["entry_id"]
    unknown = await ask("reword", pool["id"], str(UUID(int=1)), "--tenant", "shop")
    assert unknown.code == 1
    assert unknown.err.startswith("hlas: ")
    assert unknown.err.count("\n") == 1
    worded = await ask("reword", pool["id"], entry_id, "--tenant", "shop")
    assert worded == (0, f"shop: entry {entry_id} answers 1 question.\n", "")
    [entry] = await entries.list_entries(operators, shop.id)
    assert (entry.question, entry.wordings) == ("Is there a sauna?", ("Sauna?", "Is there a pool?"))
    dismissed = await ask("dismiss", nonsense["id"], "--tenant", "shop")
    assert dismissed == (0, "shop: 1 question dismissed.\n", "")
    assert (await ask("list", "--tenant", "shop")).out == "No unanswered questions.\n"
    again = await ask("dismiss", nonsense["id"], "--tenant", "shop")
    assert again == (1, "", f"hlas: there is no open question {nonsense['id']}\n")
