"""Export, erasure and anonymisation.

Fails with these defects planted: the tenant left out of a query, `last_seq` off by one when
a long conversation is shortened, a page's last row repeated, pages joined in memory, the visitor's
id in the audit.
"""

import asyncio
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from archives import counts, fill
from factories import Site
from hlas.errors import TenantNotFound
from hlas.privacy import erasure, export, retention, subjects
from hlas.store.db import Database, log_in
from hlas.store.logins import OPERATOR, Logins
from hlas.tenants import tenants
from processes import environment, hlas

VISITOR = "jana.novakova@example.com"


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pages and batches even with a few rows."""
    monkeypatch.setattr(erasure, "BATCH_MESSAGES", 10)
    monkeypatch.setattr(erasure, "BATCH_CONVERSATIONS", 3)
    monkeypatch.setattr(export, "PAGE", 4)


async def make_tenant(operators: Database, slug: str) -> str:
    return str((await tenants.add(operators, slug, slug, [])).id)


async def export_lines(
    operators: Database, slug: str, visitor_id: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    whose = await subjects.find_subject(operators, slug, visitor_id)
    return [orjson.loads(line) async for line in export.export(operators, whose, **options)]


async def audit(operators: Database) -> list[tuple[str, str, dict[str, int]]]:
    rows = await operators.all(
        "select action, target, after from events where action like 'privacy%' order by id"
    )
    return [(row["action"], row["target"], row["after"]) for row in rows]


@pytest.mark.usefixtures("small_batches")
async def test_export(operators: Database) -> None:
    """Every conversation and message of the tenant once, in order, and no other tenant's."""
    shop = await make_tenant(operators, "shop")
    other = await make_tenant(operators, "other")
    ids = await fill(operators, shop, 9, 7, visitor_id=VISITOR)
    ids += await fill(operators, shop, 2, 0)
    await fill(operators, other, 3, 3, visitor_id=VISITOR)
    heard: list[int] = []
    lines = await export_lines(operators, "shop", on_progress=heard.append)
    assert sorted(line["id"] for line in lines if line["type"] == "conversation") == sorted(ids)
    owner, seq = "", 0
    for line in lines:
        if line["type"] == "conversation":
            owner, seq = line["id"], 0
            continue
        seq += 1
        assert (line["conversation_id"], line["seq"]) == (owner, seq)
        assert line["content"] == f"message {seq}"
    assert sum(heard) == 63
    whose = await subjects.find_subject(operators, "shop")
    assert (await subjects.count_data(operators, whose)).to_dict() == {
        "conversations": 11,
        "messages": 63,
    }
    assert await audit(operators) == [
        ("privacy.export", "tenant", {"conversations": 11, "messages": 63})
    ]


@pytest.mark.usefixtures("small_batches")
async def test_export_while_visitors_write(operators: Database) -> None:
    """Conversations that grow during the export are exported in full."""
    shop = await make_tenant(operators, "shop")
    await fill(operators, shop, 6, 3)
    await operators.execute("update conversations set last_seq = 1")
    lines = await export_lines(operators, "shop")
    assert sum(line["type"] == "message" for line in lines) == 18
    assert sum(line["type"] == "conversation" for line in lines) == 6


@pytest.mark.usefixtures("small_batches")
async def test_export_of_a_visitor(operators: Database) -> None:
    """One visitor's data with all metadata; an unknown visitor or tenant is an error."""
    shop = await make_tenant(operators, "shop")
    await fill(operators, shop, 2, 3, visitor_id=VISITOR)
    await fill(operators, shop, 2, 3, visitor_id="petr")
    lines = await export_lines(operators, "shop", VISITOR)
    assert len(lines) == 8
    first = lines[0]
    assert (first["visitor_id"], first["metadata"]) == (VISITOR, {"email": "jana@example.com"})
    assert await export_lines(operators, "shop", "nobody") == []
    with pytest.raises(TenantNotFound):
        await export_lines(operators, "none")


async def test_anonymous_export(operators: Database) -> None:
    """One pseudonym per visitor, different in every export, and nothing that identifies them."""
    shop = await make_tenant(operators, "shop")
    await fill(operators, shop, 2, 3, visitor_id=VISITOR)
    await fill(operators, shop, 1, 3, visitor_id="petr")
    names = []
    for _ in range(2):
        lines = await export_lines(operators, "shop", anonymous=True)
        text = orjson.dumps(lines).decode()
        for telling in (VISITOR, "jana", "petr", "/basket"):
            assert telling not in text
        names.append([line["visitor_id"] for line in lines if line["type"] == "conversation"])
    for one in names:
        assert len(set(one)) == 2
    assert not set(names[0]) & set(names[1])


@pytest.mark.usefixtures("small_batches")
async def test_erase_a_visitor(operators: Database) -> None:
    """The visitor's conversations, messages and stored responses are deleted; no others are."""
    shop = await make_tenant(operators, "shop")
    other = await make_tenant(operators, "other")
    await fill(operators, shop, 7, 4, visitor_id=VISITOR)
    await fill(operators, shop, 1, 47, visitor_id=VISITOR)
    await fill(operators, shop, 2, 3, visitor_id="petr")
    await fill(operators, other, 2, 3, visitor_id=VISITOR)
    heard: list[int] = []
    whose = await subjects.find_subject(operators, "shop", VISITOR)
    done = await erasure.erase(operators, whose, on_progress=heard.append)
    assert done.to_dict() == {"conversations": 8, "messages": 75}
    assert sum(heard) == 75
    assert await counts(operators, shop) == (2, 6, 6)
    assert await counts(operators, other) == (2, 6, 6)
    # A second run finds nothing and adds no event.
    assert not await erasure.erase(operators, whose)
    assert await audit(operators) == [
        ("privacy.erase", "visitor", {"conversations": 8, "messages": 75})
    ]


async def test_erase_a_conversation(operators: Database) -> None:
    """By its id, and only within the given tenant."""
    shop = await make_tenant(operators, "shop")
    await make_tenant(operators, "other")
    one, _ = await fill(operators, shop, 2, 5)
    foreign = await subjects.find_subject(operators, "other", conversation=UUID(one))
    assert not await erasure.erase(operators, foreign)
    assert await counts(operators, shop) == (2, 10, 10)
    own = await subjects.find_subject(operators, "shop", conversation=UUID(one))
    assert (await erasure.erase(operators, own)).to_dict() == {"conversations": 1, "messages": 5}
    assert await counts(operators, shop) == (1, 5, 5)


async def test_the_audit_has_no_visitor_data(operators: Database) -> None:
    """The audit records the erasure; the visitor and their messages are nowhere in the database."""
    shop = await make_tenant(operators, "shop")
    await fill(operators, shop, 2, 3, visitor_id=VISITOR)
    whose = await subjects.find_subject(operators, "shop", VISITOR)
    await export_lines(operators, "shop", VISITOR)
    await erasure.erase(operators, whose)
    rows = await operators.all("select e::text as text from events e")
    assert len(rows) == 3
    for row in rows:
        for telling in (VISITOR, "jana", "message 1", "/basket"):
            assert telling not in row["text"]


async def test_erase_while_the_visitor_writes(site: Site, operators: Database) -> None:
    """A visitor who is writing is refused from then on, never with a 500; nothing is left."""
    await site.open(visitor_id=VISITOR)
    whose = await subjects.find_subject(operators, site.slug, VISITOR)
    first = asyncio.Event()

    async def write() -> list[int]:
        statuses = []
        for number in range(1000):
            answer = await site.send(f"hello {number}", key=f"a-key-of-mine-{number}")
            statuses.append(answer.status_code)
            first.set()
            if answer.status_code != 200:
                break
        return statuses

    writing = asyncio.create_task(write())
    await first.wait()
    done = await erasure.erase(operators, whose)
    statuses = await writing
    assert set(statuses[:-1]) == {200}
    assert statuses[-1] == 403
    assert done.to_dict() == {"conversations": 1, "messages": len(statuses) - 1}
    # Only the session of the fixture is left.
    assert await counts(operators, site.tenant_id) == (1, 0, 0)


async def test_waits_for_a_message_under_way(
    site: Site, operators: Database, database_url: str
) -> None:
    """A conversation that is locked at this moment is not skipped."""
    await site.open(visitor_id=VISITOR)
    await site.send("hello")
    whose = await subjects.find_subject(operators, site.slug, VISITOR)
    busy = await log_in(Logins(database_url), OPERATOR)
    await busy.execute("begin")
    await busy.execute("select 1 from conversations for no key update")
    erasing = asyncio.create_task(erasure.erase(operators, whose))
    await asyncio.sleep(0.3)
    assert not erasing.done()
    await busy.execute("rollback")
    await busy.close()
    assert (await erasing).to_dict() == {"conversations": 1, "messages": 1}


@pytest.mark.usefixtures("small_batches")
async def test_anonymise(operators: Database) -> None:
    """Messages are kept; the visitor's id and the page's metadata are removed."""
    shop = await make_tenant(operators, "shop")
    await fill(operators, shop, 2, 47, visitor_id=VISITOR)
    await fill(operators, shop, 1, 4, visitor_id="petr")
    whose = await subjects.find_subject(operators, "shop", VISITOR)
    done = await erasure.anonymise(operators, whose)
    assert done.to_dict() == {"conversations": 2, "messages": 94}
    lines = await export_lines(operators, "shop")
    assert len(lines) == 3 + 98
    assert VISITOR not in orjson.dumps(lines).decode()
    of_petr = {
        line["id"] for line in lines if line["type"] == "conversation" and line["visitor_id"]
    }
    for line in lines:
        if line["type"] == "message" and line["conversation_id"] not in of_petr:
            assert line["metadata"] == ({} if line["role"] == "user" else {"reply_to": 1})
    petr = await export_lines(operators, "shop", "petr")
    assert petr[0]["metadata"] == {"email": "jana@example.com"}
    assert petr[1]["metadata"] == {"page": "/basket"}
    assert not await erasure.anonymise(operators, whose)
    assert (await audit(operators))[0] == (
        "privacy.anonymise",
        "visitor",
        {"conversations": 2, "messages": 94},
    )


async def test_anonymise_a_conversation(site: Site, operators: Database) -> None:
    """One conversation is anonymised, and its visitor can continue it."""
    await site.open(visitor_id=VISITOR)
    await site.send("hello", metadata={"page": "/basket"})
    whose = await subjects.find_subject(
        operators, site.slug, conversation=UUID(site.conversation_id)
    )
    assert (await erasure.anonymise(operators, whose)).conversations == 1
    assert (await site.send("still here")).status_code == 200
    page = await site.history()
    assert [one["metadata"] for one in page["messages"]] == [{}, {}]


async def give_contact(operators: Database, conversation_id: str) -> None:
    """The visitor asks for a person, leaves an address, and rates an answer."""
    await operators.execute(
        """
        update conversations set person_wanted_at = now(), contact = $2 where id = $1::text::uuid
        """,
        conversation_id,
        {"email": VISITOR},
    )
    await operators.execute(
        """
        insert into ratings (tenant_id, conversation_id, message_id, rating, comment)
        select tenant_id, conversation_id, id, 'down', 'Jana says no'
        from messages where conversation_id = $1::text::uuid and seq = 2
        """,
        conversation_id,
    )


async def test_contacts_and_ratings(operators: Database) -> None:
    """They are exported; forgotten by anonymisation, but for the thumb; erased and retired."""
    shop = await make_tenant(operators, "shop")
    await tenants.update(operators, "shop", {"retention_days": 30})
    ids = await fill(operators, shop, 2, 4, visitor_id=VISITOR)
    ids += await fill(operators, shop, 1, 4, days=40)
    for one in ids:
        await give_contact(operators, one)
    about, _, answer, *_ = await export_lines(operators, "shop", VISITOR)
    assert about["contact"] == {"email": VISITOR, "name": None, "phone": None}
    assert about["person_wanted_at"]
    assert (answer["rating"]["rating"], answer["rating"]["comment"]) == ("down", "Jana says no")
    hidden = orjson.dumps(await export_lines(operators, "shop", anonymous=True)).decode()
    assert "Jana" not in hidden
    assert VISITOR not in hidden
    one, two, _ = ids
    whose = await subjects.find_subject(operators, "shop", conversation=UUID(one))
    await erasure.anonymise(operators, whose)
    lines = await export_lines(operators, "shop")
    [about] = [line for line in lines if line["id"] == one]
    assert about["contact"] == {"email": None, "name": None, "phone": None}
    [rating] = [
        line["rating"] for line in lines if line.get("conversation_id") == one and line["rating"]
    ]
    assert (rating["rating"], rating["comment"]) == ("down", "")
    await erasure.erase(operators, replace(whose, conversation_id=UUID(two)))
    await retention.run(operators)
    rows = await operators.all("select conversation_id::text as id from ratings")
    assert [row["id"] for row in rows] == [one]


async def peak_of_export(operators: Database, slug: str) -> int:
    """The peak memory of an export."""
    whose = await subjects.find_subject(operators, slug)
    tracemalloc.start()
    async for _ in export.export(operators, whose):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


async def test_streamed(operators: Database) -> None:
    """Twenty times the messages need no more memory: in many conversations, and in one."""
    for slug, shape in (("small", (10, 25)), ("many", (200, 25)), ("long", (1, 5000))):
        await fill(operators, await make_tenant(operators, slug), *shape)
    await peak_of_export(operators, "small")
    small = await peak_of_export(operators, "small")
    for slug in ("many", "long"):
        peak = await peak_of_export(operators, slug)
        # A page has a few hundred rows; 5000 messages at once would need several megabytes.
        assert peak < small + 1_500_000, (slug, small, peak)


async def test_commands(operators: Database, database_url: str, tmp_path: Path) -> None:
    """Export to a private file or to standard output, erase and clean up from the command line."""
    shop = await make_tenant(operators, "shop")
    await fill(operators, shop, 3, 4, visitor_id=VISITOR)
    await fill(operators, shop, 2, 2, visitor_id="petr", days=40)
    await fill(operators, shop, 1, 1, visitor_id="eva")
    await tenants.update(operators, "shop", {"retention_days": 30})
    variables = environment(database_url)

    def run(*arguments: str) -> Any:
        done = hlas(*arguments, cwd=tmp_path, **variables)
        assert done.returncode == 0, done.stderr
        return done

    file = tmp_path / "shop.jsonl"
    run("export", "--tenant", "shop", "--output", str(file))
    assert len(file.read_bytes().splitlines()) == 6 + 17
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    one = run("export", "--tenant", "shop", "--visitor", VISITOR)
    assert len(one.stdout.splitlines()) == 3 + 12
    named = run("erase", "--tenant", "shop", "--visitor", VISITOR, "--yes", "--json")
    assert orjson.loads(named.stdout) == {"conversations": 3, "messages": 12}
    hidden = run("erase", "--tenant", "shop", "--visitor", "eva", "--anonymise", "--yes")
    assert "1 conversation" in hidden.stdout
    cleaned = orjson.loads(run("cleanup", "--json").stdout)
    assert cleaned["retention"] == {"shop": {"conversations": 2, "messages": 4}}
    assert await counts(operators, shop) == (1, 1, 1)


async def test_refused_commands(operators: Database, database_url: str, tmp_path: Path) -> None:
    """No subject, two subjects, no confirmation or an unknown tenant: one line, no deletion."""
    shop = await make_tenant(operators, "shop")
    [one] = await fill(operators, shop, 1, 2, visitor_id=VISITOR)
    erase = ("erase", "--tenant", "shop")
    for arguments, told in (
        ((*erase, "--yes"), "--visitor or --conversation"),
        ((*erase, "--visitor", VISITOR, "--conversation", one, "--yes"), "--visitor or"),
        ((*erase, "--visitor", "", "--yes"), "--visitor or"),
        ((*erase, "--conversation", "x", "--yes"), "conversation"),
        ((*erase, "--visitor", VISITOR), "--yes"),
        (("erase", "--tenant", "none", "--visitor", "v", "--yes"), "there is no tenant 'none'"),
        (("export", "--tenant", "none", "--output", "out"), "there is no tenant 'none'"),
        (("export", "--tenant", "shop", "--output", "/nowhere/out"), "/nowhere/out"),
    ):
        done = hlas(*arguments, cwd=tmp_path, **environment(database_url))
        assert done.returncode != 0, arguments
        assert told in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    assert await counts(operators, shop) == (1, 2, 2)
    assert list(tmp_path.iterdir()) == []
