"""Knowledge in the database: atomic changes, audit, isolation, and any text."""

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from factories import MakeLogins, url_of
from hlas.agent.ranker import Ranker
from hlas.demo import tenant as demo
from hlas.errors import TooManyEntries
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry, KnowledgeError, Saved
from hlas.knowledge.language import Language
from hlas.knowledge.ranking import confidence
from hlas.knowledge.ranking.index import MATCHES
from hlas.settings import ConfigurationError
from hlas.store import embedded, migrations
from hlas.store.db import Database, connect
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.tenants import tenants

SURE = confidence.load().thresholds.sure
ENTRIES = [Entry("When are you open?", "From 9 to 17."), Entry("Where are you?", "On the square.")]


async def add_tenant(operators: Database, slug: str = "shop") -> UUID:
    return (await tenants.add(operators, slug, slug, [])).id


async def events(operators: Database, tenant_id: UUID) -> list[tuple[str, str, Any, Any]]:
    rows = await operators.all(
        "select action, target, before, after from events "
        "where tenant_id = $1 and action like 'knowledge.%' order by created_at, id",
        tenant_id,
    )
    return [(row["action"], row["target"], row["before"], row["after"]) for row in rows]


async def test_save_again(operators: Database) -> None:
    """An entry is identified by its question: a second import updates it and keeps its id."""
    tenant_id = await add_tenant(operators)
    progress: list[int] = []
    first = await entries.save(
        operators, tenant_id, ENTRIES, source="faq.md", on_progress=progress.append
    )
    ids = {one.question: one.id for one in await entries.list_entries(operators, tenant_id)}
    changed = [Entry("Where are you?", "In the park.", ("map",), "en"), ENTRIES[0]]
    second = await entries.save(operators, tenant_id, changed, source="faq.md")
    found = await entries.list_entries(operators, tenant_id)
    assert (first, second) == (Saved(2, 0, 0, 0), Saved(0, 1, 1, 0))
    assert {one.question: one.id for one in found} == ids
    assert [one.answer for one in found] == ["From 9 to 17.", "In the park."]
    assert (found[1].keywords, found[1].language) == (("map",), "en")
    assert progress == [2]
    assert [event[:2] for event in await events(operators, tenant_id)] == [
        ("knowledge.import", "faq.md"),
        ("knowledge.import", "faq.md"),
    ]


async def test_replace(operators: Database) -> None:
    """With replace, entries that are not in the file are removed; the file sets the order."""
    tenant_id = await add_tenant(operators)
    await entries.save(operators, tenant_id, ENTRIES, source="old.md")
    new = [ENTRIES[1], Entry("Do you deliver?", "Yes.")]
    saved = await entries.save(operators, tenant_id, new, source="new.md", replace=True)
    found = await entries.list_entries(operators, tenant_id)
    assert saved == Saved(added=1, updated=1, unchanged=0, removed=1)
    assert [one.question for one in found] == ["Where are you?", "Do you deliver?"]


async def test_import_is_all_or_nothing(
    operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the database refuses one entry, nothing changes, including the audit."""
    monkeypatch.setattr(entries, "BATCH_ENTRIES", 1)
    tenant_id = await add_tenant(operators)
    await entries.save(operators, tenant_id, ENTRIES, source="faq.md")
    before = await entries.list_entries(operators, tenant_id)
    bad = [Entry("A new one?", "Yes."), Entry("An empty one?", "")]
    with pytest.raises(asyncpg.CheckViolationError):
        await entries.save(operators, tenant_id, bad, source="bad.md", replace=True)
    assert await entries.list_entries(operators, tenant_id) == before
    assert len(await events(operators, tenant_id)) == 1


async def test_most_entries(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a tenant's entries is bounded, for every import."""
    monkeypatch.setattr(entries, "MOST_ENTRIES", 2)
    tenant_id = await add_tenant(operators)
    await entries.save(operators, tenant_id, ENTRIES, source="faq.md")
    with pytest.raises(TooManyEntries, match="at most 2 entries"):
        await entries.save(operators, tenant_id, [Entry("A third?", "No.")], source="faq.md")
    assert len(await entries.list_entries(operators, tenant_id)) == 2


async def test_remove(operators: Database) -> None:
    """Entries are removed together or not at all, and the audit keeps their questions."""
    tenant_id = await add_tenant(operators)
    other_id = await add_tenant(operators, "other")
    await entries.save(operators, tenant_id, ENTRIES, source="faq.md")
    ids = [one.id for one in await entries.list_entries(operators, tenant_id)]
    for wrong_tenant, wrong_ids in ((tenant_id, [ids[0], uuid4()]), (other_id, ids)):
        with pytest.raises(KnowledgeError, match="there is no entry"):
            await entries.remove_entries(operators, wrong_tenant, wrong_ids)
    assert len(await entries.list_entries(operators, tenant_id)) == 2
    await entries.remove_entries(operators, tenant_id, ids[:1])
    assert [one.id for one in await entries.list_entries(operators, tenant_id)] == [ids[1]]
    assert (await events(operators, tenant_id))[1:] == [
        ("knowledge.remove", str(ids[0]), {"question": ENTRIES[0].question}, None)
    ]


async def test_unknown_tenant(operators: Database) -> None:
    """Knowledge of an unknown tenant is refused in one line."""
    with pytest.raises(KnowledgeError, match="no such tenant"):
        await entries.save(operators, uuid4(), ENTRIES, source="faq.md")


async def test_isolation(operators: Database, database: Database) -> None:
    """Edge case 36: the same question finds each tenant's own entry, and no other's."""
    one, two, three = [await add_tenant(operators, slug) for slug in ("one", "two", "three")]
    await entries.save(operators, one, [Entry("Opening hours?", "One.")], source="faq.md")
    await entries.save(operators, two, [Entry("Opening hours?", "Two.")], source="faq.md")
    answers = [
        [match.answer for match in await Ranker(database).rank(str(who), "opening hours", "en")]
        for who in (one, two, three)
    ]
    assert answers == [["One."], ["Two."], []]


async def test_application_reads_only(operators: Database, database: Database) -> None:
    """Edge case 37: without a tenant no row is visible; the application's role is read-only."""
    await entries.save(operators, await add_tenant(operators), ENTRIES, source="faq.md")
    assert await database.all("select * from knowledge") == []
    for statement in (
        "delete from knowledge",
        "update knowledge set answer = 'x'",
        "insert into knowledge (question) values ('x')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.execute(statement)


async def test_any_language(operators: Database, database: Database) -> None:
    """An entry without a language is found by inflected words of either language."""
    tenant_id = await add_tenant(operators)
    both = [
        Entry("Faktury", "Ano.", ("invoices",)),
        Entry("Doprava", "Ne."),
        Entry("Parking", "No."),
    ]
    await entries.save(operators, tenant_id, both, source="faq.md")
    for text in ("fakturami", "fakturach", "invoice", "invoicing"):
        best = (await Ranker(database).rank(str(tenant_id), text, "cs"))[0]
        assert best.answer == "Ano.", text
        assert best.confidence >= SURE, text


async def test_no_meaningful_words(operators: Database, database: Database) -> None:
    """Stop words alone, or no words at all, match nothing."""
    tenant_id = await add_tenant(operators)
    await entries.save(operators, tenant_id, ENTRIES, source="faq.md")
    for text in ("", "?!", "a b c", "how are you", "🙂🙂"):
        assert await Ranker(database).rank(str(tenant_id), text, "en") == []


@pytest.fixture
async def demo_tenant(operators: Database) -> str:
    tenant_id = await add_tenant(operators)
    await demo.load_demo(operators, tenant_id)
    return str(tenant_id)


@settings(
    max_examples=120,
    deadline=None,
    # One database for all examples is intended: nothing is written.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    text=st.one_of(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=100),
        # Operators of the query language, and letters that are folded to them.
        st.text("faktur ':&|!<->*()\\\"ěščřžß²½ŉﬁ", max_size=30),
    )
)
@example(text="½½ ŉŉ")
async def test_any_text(demo_tenant: str, database: Database, text: str) -> None:
    """Edge case 34: for any text, ranking returns confidences from 0 to 1."""
    for match in await Ranker(database).rank(demo_tenant, text, "cs"):
        assert 0 <= match.confidence <= 1


@pytest.mark.parametrize(
    ("typed", "meant", "language"),
    [
        ("fakturra", "faktura", "cs"),
        ("odstvka", "odstávka", "cs"),
        ("stehovni", "stěhování", "cs"),
        ("zesilovc", "zesilovač", "cs"),
        ("instalation", "installation", "en"),
        ("maintenence", "maintenance", "en"),
        ("tecnician", "technician", "en"),
        ("availible", "available", "en"),
    ],
)
async def test_typos(
    demo_tenant: str, database: Database, typed: str, meant: str, language: Language
) -> None:
    """A misspelled word finds the same entry, with enough confidence for an answer."""
    wanted = (await Ranker(database).rank(demo_tenant, meant, language))[0]
    found = (await Ranker(database).rank(demo_tenant, typed, language))[0]
    assert found.answer == wanted.answer
    assert found.confidence >= SURE


async def test_long_message(demo_tenant: str, database: Database) -> None:
    """A message of the maximum length is ranked, too."""
    text = "faktura " + " ".join(f"slovo{number}" for number in range(250))
    found = await Ranker(database).rank(demo_tenant, text, "cs")
    assert 0 < len(found) <= MATCHES


@pytest.fixture
async def bare(empty: MakeLogins, postgres_server: embedded.Server) -> Any:
    """A database without a schema, and its administrator."""
    logins = await empty()
    administrator = await connect(url_of(postgres_server.superuser_url, logins.prefix))
    yield logins, administrator
    await administrator.close()


async def test_extensions_in_their_own_schema(bare: tuple[Logins, asyncpg.Connection]) -> None:
    """Extensions in another schema are used where they are."""
    logins, administrator = bare
    owner = logins.prefix
    await administrator.execute("create schema extras")
    await administrator.execute(f"grant usage on schema extras to {owner}")
    for extension in ("pg_trgm", "unaccent"):
        await administrator.execute(f"create extension {extension} schema extras")
    await migrations.upgrade_in_thread(logins)
    operators = await Database.open(logins, OPERATOR)
    database = await Database.open(logins, APPLICATION)
    tenant_id = await add_tenant(operators)
    await demo.load_demo(operators, tenant_id)
    best = (await Ranker(database).rank(str(tenant_id), "kde najdu fakturu", "cs"))[0]
    assert best.answer.startswith("Faktur")
    await operators.close()
    await database.close()


async def test_extensions_not_allowed(bare: tuple[Logins, asyncpg.Connection]) -> None:
    """A user who may not create extensions gets one line with the SQL for an administrator."""
    logins, administrator = bare
    owner = logins.prefix
    # Only the owner of a database, or a user who may create in it, can add an extension.
    await administrator.execute(f"alter schema public owner to {owner}")
    await administrator.execute(f"alter database {logins.prefix} owner to current_user")
    await administrator.execute(f"revoke create on database {logins.prefix} from public, {owner}")
    with pytest.raises(ConfigurationError) as error:
        await migrations.upgrade_in_thread(logins)
    assert "\n" not in str(error.value)
    assert "create extension pg_trgm;" in str(error.value)
