"""Whatever one tenant's knowledge contains, other tenants are not slowed down.

Fails with agents on the pool of the other routes (history: 503), and with candidates that are
compared without a limit on their words.
"""

import asyncio
import io
import itertools
import random
import string
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from types import FrameType
from uuid import UUID

import asyncpg
import httpx
import pytest

from factories import Site, make_site, serve_app
from hlas.agent import Question, loop
from hlas.agent import knowledge as agent
from hlas.agent.phrases import FALLBACK
from hlas.agent.ranker import Ranker
from hlas.errors import TooManyEntries
from hlas.knowledge import entries as knowledge
from hlas.knowledge.entries import (
    LONGEST_KEYWORD,
    LONGEST_QUESTION,
    MOST_KEYWORDS,
    MOST_WORDINGS,
    Entry,
)
from hlas.knowledge.ranking import library
from hlas.knowledge.ranking.index import Index
from hlas.knowledge.ranking.library import Library
from hlas.knowledge.ranking.terms import place_terms
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants
from listeners import Notebook

random_ = random.Random(51)  # words for a test
WORDS = ["".join(random_.choices(string.ascii_lowercase, k=7)) for _ in range(2000)]


def words(count: int) -> str:
    return " ".join(random_.sample(WORDS, count))


def ordinary(number: int) -> Entry:
    return Entry(f"{words(8)} {number}", words(40), tuple(random_.sample(WORDS, 5)))


def similar(number: int) -> Entry:
    """Many entries of a large shop have most of their words in common."""
    goods = random_.choice(WORDS)
    question = random_.choice(("Kolik stojí doprava", "Kdy přijde", "Jak vrátím", "Je skladem"))
    return Entry(f"{question} {goods} {number}?", f"Doprava stojí 99 Kč, {goods} přijde zítra.")


# Entries of the maximum size: long keywords of many short words, and a long answer.
def crowded(number: int) -> Entry:
    keywords = tuple(("ab " * LONGEST_KEYWORD)[:LONGEST_KEYWORD] for _ in range(MOST_KEYWORDS))
    return Entry(f"{number} {'ab ' * 160}", words(1000), keywords)


# The most expensive questions found: many similar short words, few long ones, a huge one.
QUESTIONS = (
    " ".join(f"ab{letter}{number}" for number in range(2) for letter in string.ascii_lowercase),
    " ".join((letter + "ab" * 40)[:49] for letter in string.ascii_lowercase),
    "ab" * 1000,
    words(250),
)


def make_index(entries: list[Entry]) -> Index:
    index = Index()
    for number, entry in enumerate(entries):
        index.put(str(number), entry)
    return index


@cache
def make_similar_index(entries: int) -> Index:
    return make_index([similar(number) for number in range(entries)])


def count_calls(work: Callable[[], object]) -> int:
    """Calls of functions, built-in ones too: the same on any machine."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    work()  # what is remembered from one time to the next
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def count_work(index: Index, text: str) -> int:
    return count_calls(lambda: index.search(text, "en"))


def test_entries_of_any_shape_cost_alike() -> None:
    """Edge case 51: entries of the maximum size cost a few times as much as ordinary ones."""
    usual = make_index([ordinary(number) for number in range(60)])
    worst = make_index([crowded(number) for number in range(60)])
    reference = count_work(usual, QUESTIONS[-1])
    for question in QUESTIONS:
        work = count_work(worst, question)
        print(f"{work} calls, ordinary entries {reference}")
        assert work < 8 * reference


def reworded(number: int) -> Entry:
    """As many wordings, and as long ones, as an entry can have."""
    wordings = tuple(("abc " * 125)[:LONGEST_QUESTION] for _ in range(MOST_WORDINGS))
    return replace(crowded(number), wordings=wordings)


def test_indexing_an_entry_is_bounded() -> None:
    """Edge case 51: heads of any number and length take no more time than a long answer."""
    answer, heads = Entry("a", "abc abc. " * 800), replace(reworded(1), answer="a")
    usual = count_calls(lambda: place_terms(answer, "en"))
    worst = count_calls(lambda: place_terms(heads, "en"))
    print(f"{worst} calls, an answer of maximum size {usual}")
    assert worst < 4 * usual


async def test_other_work_gets_its_turn_while_entries_are_indexed() -> None:
    """Edge case 51: between two large entries a worker does what else it has to do."""
    rows = [
        {"id": number, "version": number, **asdict(Entry(f"q{number}", words(1000)))}
        for number in range(10)
    ]
    index = Index()
    task = asyncio.create_task(library._take(index, rows))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert (len(index), turns >= len(rows)) == (10, True)


@pytest.mark.parametrize("text", ["kolik stojí doprava a kdy přijde", *QUESTIONS])
def test_large_knowledge_costs_little_more(text: str) -> None:
    """At 5 000 entries a question costs at most twice the work at 50."""
    few, many = [count_work(make_similar_index(entries), text) for entries in (50, 5000)]
    print(f"{few} calls at 50 entries, {many} at 5 000")
    assert many < 2 * few


@pytest.mark.parametrize("text", ["x " * 50_000, "x" * 100_000, *QUESTIONS])
def test_what_is_searched_is_bounded(text: str) -> None:
    """Edge case 51: at most 20 words of 40 characters of a question are searched."""
    question, _ = make_index([]).compare(text, "en", None)
    assert len(question.words) <= 20
    assert all(len(one.content_word.word.form) <= 40 for one in question.words)


WAITING = """
select count(*) as n from pg_locks where not granted and relation = 'knowledge'::regclass
"""


async def count_waiting(operators: Database) -> int:
    """Statements in the database that wait for a lock."""
    row = await operators.one(WAITING)
    return 0 if row is None else int(row["n"])


async def wait_for_locks(operators: Database, count: int) -> None:
    async with asyncio.timeout(30):
        while await count_waiting(operators) < count:  # noqa: ASYNC110  # polls the database
            await asyncio.sleep(0.01)


async def ask(site: Site) -> httpx.Response:
    return await site.live.client.post("/widget/messages/assistant", headers=site.headers())


async def test_slow_knowledge_affects_only_its_tenant(
    settings: Settings,
    logs: io.BytesIO,
    operators: Database,
    locker: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Edge case 51: while every ranking hangs, all other requests are answered.

    A tenant has one question in progress at a time, so it does not delay a second tenant.
    """
    # A long timeout, because the questions wait until the others have been answered.
    monkeypatch.setattr(loop, "STATEMENT_SECONDS", 60.0)
    monkeypatch.setattr(agent, "ANSWER_SECONDS", 60.0)
    async with serve_app(settings, logs) as live:
        slow, second = [await make_site(live, operators, handler="agent") for _ in range(2)]
        other = await make_site(live, operators)
        # Each in a conversation of its own, so that each is a run of its own.
        visits = [slow]
        for _ in range(19):
            visits.append(replace(slow))
            await visits[-1].open()
        # The server cancels a statement after 5 s: from here on nothing takes long.
        await locker.execute("lock table knowledge in access exclusive mode")
        await asyncio.gather(*(site.send("What does it cost?") for site in visits))
        asked = [asyncio.create_task(ask(site)) for site in visits]
        await wait_for_locks(operators, 1)
        await second.send("What does it cost?")
        asked.append(asyncio.create_task(ask(second)))
        await wait_for_locks(operators, 2)
        for _ in range(3):
            assert (await other.send("Is anybody there?")).status_code == 200
            assert (await other.history())["paging"]["has_more"] is False
            await other.open()
        # One question of each tenant; a slow machine may have had an earlier one cancelled.
        await wait_for_locks(operators, 2)
        assert await count_waiting(operators) <= 2
        await locker.execute("rollback")
        assert [(await task).status_code for task in asked] == [200] * 21


async def test_a_tenant_pauses_as_long_as_it_took(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 51: one tenant's questions keep the database busy at most half of the time."""
    times: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()

    async def open_index(*_: object) -> Index:
        started = loop.time()
        await asyncio.sleep(0.1)
        times.append((started, loop.time()))
        return Index()

    monkeypatch.setattr(Library, "open", open_index)
    monkeypatch.setattr(agent, "ANSWER_SECONDS", 60.0)
    one = agent.KnowledgeAgent(Ranker(database))
    question = Question("a tenant", "a conversation", "What does it cost?", "en")
    await asyncio.gather(*(one.answer(question, Notebook()) for _ in range(4)))
    for (started, ended), (following, _) in itertools.pairwise(times):
        assert following >= ended + (ended - started) * 0.99
    assert len(times) == 4


async def test_questions_that_wait_are_answered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is not answered with the fallback because others came before it."""

    async def open_index(*_: object) -> Index:
        await asyncio.sleep(0.25)
        return index

    index = make_index([Entry("What does it cost?", "That.")])
    monkeypatch.setattr(Library, "open", open_index)
    one = agent.KnowledgeAgent(Ranker(database))
    question = Question("a tenant", "a conversation", "What does it cost?", "en")
    answers = await asyncio.gather(*(one.answer(question, Notebook()) for _ in range(5)))
    assert [answer.text for answer in answers] == ["That."] * 5


async def test_a_slow_ranking_is_cancelled(
    answered: Site, operators: Database, locker: asyncpg.Connection
) -> None:
    """Edge case 51: a ranking that takes too long is cancelled, and answered.

    The visitor gets the fallback sentence, a line is logged, and the connection is reused.
    """
    site = answered
    await locker.execute("lock table knowledge in access exclusive mode")
    await site.send("What does it cost?")
    answer = await ask(site)
    assert (answer.status_code, answer.json()["text"]) == (200, FALLBACK["en"])
    (line,) = site.live.events("ranking_skipped")
    assert line["tenant_id"] == site.tenant_id
    assert await count_waiting(operators) == 0, "the database goes on working for nobody"
    await locker.execute("rollback")
    entry = Entry("What does it cost?", "Nothing.", (), "en")
    await knowledge.save(operators, UUID(site.tenant_id), [entry], source="test")
    async with asyncio.timeout(30):
        # A busy machine may skip the ranking again.
        while (await ask(site)).json()["text"] != "Nothing.":
            await site.send("What does it cost?")


async def test_the_server_cancels_statements(site: Site) -> None:
    """Edge case 51: the server cancels a statement by itself, also for a killed worker."""
    services = site.live.app.state.services
    for database in (services.agent.means.ranker._database, services.database):
        row = await database.one("select current_setting('statement_timeout') as told")
        assert row["told"] == "5s"


async def test_most_characters(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 51: a tenant's total size is bounded; existing entries can still be shortened."""
    monkeypatch.setattr(knowledge, "MOST_CHARACTERS", 100)
    tenant_id = (await tenants.add(operators, "shop", "shop", [])).id
    first = await knowledge.add(operators, tenant_id, Entry("q1", "a" * 60))
    with pytest.raises(TooManyEntries, match="at most 100 characters in all"):
        await knowledge.add(operators, tenant_id, Entry("q2", "a" * 60))
    with pytest.raises(TooManyEntries, match="at most 100 characters in all"):
        await knowledge.save(operators, tenant_id, [Entry("q2", "a" * 60)], source="faq.md")
    entry_id = first.id
    with pytest.raises(TooManyEntries, match="at most 100 characters in all"):
        await knowledge.update(operators, tenant_id, entry_id, Entry("q1", "a" * 60, ("k" * 40,)))
    monkeypatch.setattr(knowledge, "MOST_CHARACTERS", 10)
    await knowledge.update(operators, tenant_id, entry_id, Entry("q1", "a" * 50))
    (only,) = await knowledge.list_entries(operators, tenant_id)
    assert only.answer == "a" * 50
