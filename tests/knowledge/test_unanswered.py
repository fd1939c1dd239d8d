"""Questions that the knowledge did not answer."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from drafts import make_session
from hlas.knowledge import unanswered
from hlas.knowledge.groups import SLICE, Question, gather
from hlas.knowledge.language import Language
from hlas.knowledge.ranking import Match
from hlas.knowledge.unanswered import Place
from hlas.privacy import erasure
from hlas.privacy.subjects import Subject
from hlas.store.db import Confined, Database
from hlas.visitors.tokens import Session
from questions import ask_in_vain, write

ONE, TWO = str(UUID(int=1)), str(UUID(int=2))


async def read_rows(operators: Database) -> list[Any]:
    rows = await operators.all(
        "select conversation_id, seq, reason, entries from unanswered order by created_at, seq"
    )
    return [(row["seq"], row["reason"], [str(one) for one in row["entries"]]) for row in rows]


async def test_record(database: Database, operators: Database) -> None:
    """The strongest reason is kept, only visitors' messages of the tenant count, and what was
    taken back is gone unless it met the fallback.
    """
    session, other = await make_session(operators), await make_session(operators)
    tenant_id, conversation_id = session.tenant_id, session.conversation_id
    await write(operators, session, 1, "Do you have a sauna?")
    await write(operators, session, 2, "I do not know.", "assistant", reply_to=1, source="fallback")
    await write(operators, session, 3, "When do you open?")
    await write(operators, session, 4, "In May.", "assistant", reply_to=3, source="knowledge")

    await unanswered.record(database, tenant_id, conversation_id, 1, "none_of_these", [ONE])
    await unanswered.record(database, tenant_id, conversation_id, 1, "fallback")
    assert await read_rows(operators) == [(1, "none_of_these", [ONE])]
    await unanswered.record(database, tenant_id, conversation_id, 1, "thumbs_down", [TWO])
    await unanswered.record(database, tenant_id, conversation_id, 3, "thumbs_down", [ONE])
    # An answer, a message that is not there, and the conversation of another tenant.
    await unanswered.record(database, tenant_id, conversation_id, 2, "fallback")
    await unanswered.record(database, tenant_id, conversation_id, 9, "fallback")
    await unanswered.record(database, other.tenant_id, conversation_id, 3, "fallback")
    both = [(1, "thumbs_down", [TWO]), (3, "thumbs_down", [ONE])]
    assert await read_rows(operators) == both

    async with Confined(database, other.tenant_id).transaction() as connection:
        await unanswered.take_back(connection, other.tenant_id, conversation_id, 3, "thumbs_down")
    async with Confined(database, tenant_id).transaction() as connection:
        await unanswered.take_back(connection, tenant_id, conversation_id, 3, "fallback")
        assert await read_rows(operators) == both
        for seq in (1, 3):
            await unanswered.take_back(connection, tenant_id, conversation_id, seq, "thumbs_down")
    assert await read_rows(operators) == [(1, "fallback", [TWO])]


async def test_recorded_once(database: Database, operators: Database, session: Session) -> None:
    """Retries and several workers at once make one question of a message, also when it was dealt
    with meanwhile: then it stays so.
    """
    await write(operators, session, 1, "Do you have a sauna?")
    key = (session.tenant_id, session.conversation_id, 1)
    await asyncio.gather(*(unanswered.record(database, *key, "fallback") for _ in range(8)))
    assert await read_rows(operators) == [(1, "fallback", [])]
    tenant_id, place = UUID(session.tenant_id), Place(UUID(session.conversation_id), 1)
    assert await unanswered.dismiss(operators, tenant_id, [place]) == 1
    await unanswered.record(database, *key, "fallback")
    assert await unanswered.count_open(operators, tenant_id) == 0


def ask(number: int, text: str, days_ago: int = 0) -> Question:
    asked_at = datetime(2026, 5, 1, tzinfo=UTC) - timedelta(days=days_ago, minutes=number)
    return Question(UUID(int=number), 1, text, "fallback", asked_at)


async def test_grouping() -> None:
    """Alike questions are one group with its most typical wording; frequent and recent ones come
    first; the order of the input does not matter.
    """
    asked = [
        ask(1, "Kolik stojí parkování?", days_ago=14),
        ask(2, "kolik stoji parkovani", days_ago=14),
        ask(3, "parkování"),
        ask(4, "Do you have parking?"),
        ask(5, "Can I bring my dog?"),
        ask(6, "dog"),
        ask(7, "Can I bring my dog ?!"),
        ask(8, "x" * 600),
        ask(9, "Co to je?"),
        ask(10, "co to je"),
    ]
    found = await gather(asked)
    assert [(group.title, group.wordings, len(group.questions)) for group in found] == [
        ("Can I bring my dog?", ("dog",), 3),
        ("Co to je?", (), 2),
        ("Kolik stojí parkování?", ("parkování",), 3),
        ("Do you have parking?", (), 1),
        ("x" * 500, (), 1),
    ]
    assert await gather(asked[::-1]) == found


async def test_grouping_many() -> None:
    """Questions that share all their words are grouped in slices: other work goes on meanwhile."""
    words = [f"{chr(97 + one)}{chr(97 + other)}" * 3 for one in range(8) for other in range(8)]
    random = Random(1)
    asked = [ask(number, " ".join(random.sample(words, 20))) for number in range(500)]
    with_work = 0

    async def work() -> None:
        nonlocal with_work
        while True:
            await asyncio.sleep(0)
            with_work += 1

    others = asyncio.create_task(work())
    found = await gather(asked)
    others.cancel()
    assert sum(len(group.questions) for group in found) == 500
    # Other work had its turns in between.
    assert with_work >= 500 // SLICE


async def test_most_open(operators: Database, session: Session) -> None:
    """Of 10 000 open questions the newest 2000 are grouped, cut to what a wording may have: what a
    list costs is bounded. The others follow as these are resolved.
    """
    await operators.execute(
        """
        with asked as (
            insert into messages (tenant_id, id, conversation_id, seq, role, content, meta)
            select $1::text::uuid, gen_random_uuid(), $2::text::uuid, n, 'user',
                   'question' || n || repeat(' word' || n % 100, 300), '{}'
            from generate_series(1, 10000) as n
            returning tenant_id, conversation_id, seq
        )
        insert into unanswered (tenant_id, conversation_id, seq, reason, created_at)
        select tenant_id, conversation_id, seq, 'fallback', now() + seq * interval '1 second'
        from asked
        """,
        session.tenant_id,
        session.conversation_id,
    )
    tenant_id = UUID(session.tenant_id)
    found = await unanswered.list_groups(operators, tenant_id)
    questions = [question for group in found for question in group.questions]
    assert {question.seq for question in questions} == set(range(8001, 10001))
    assert max(len(question.text) for question in questions) == unanswered.LONGEST_TEXT
    assert await unanswered.count_open(operators, tenant_id) == unanswered.MOST_OPEN
    places = [Place(question.conversation_id, question.seq) for question in questions]
    assert await unanswered.dismiss(operators, tenant_id, places) == 2_000
    rest = await unanswered.list_groups(operators, tenant_id)
    assert max(question.seq for group in rest for question in group.questions) == 8_000


async def search_nothing(_: str, __: Language) -> list[Match]:
    return []


async def test_pages(operators: Database, session: Session) -> None:
    """Pages have each group once, also if the last one of a page is resolved before the next; what
    is erased is gone, and other tenants have their own.
    """
    tenant_id = UUID(session.tenant_id)
    for text in ("Sauna?", "Parking?", "Dogs?", "Smoking?", "Breakfast?"):
        last = await ask_in_vain(operators, session.tenant_id, text)
    other = await make_session(operators)
    await ask_in_vain(operators, other.tenant_id, "Sauna?")
    first = await unanswered.page_groups(operators, tenant_id, search_nothing, None, 2)
    assert [one.group.title for one in first.groups] == ["Breakfast?", "Smoking?"]
    smoking = first.groups[1].group.questions[0]
    place = Place(smoking.conversation_id, smoking.seq)
    assert await unanswered.dismiss(operators, tenant_id, [place]) == 1
    assert await unanswered.dismiss(operators, tenant_id, [place]) == 0
    rest = await unanswered.page_groups(operators, tenant_id, search_nothing, first.next_cursor, 9)
    assert [one.group.title for one in rest.groups] == ["Dogs?", "Parking?", "Sauna?"]
    assert rest.next_cursor is None
    await erasure.erase(operators, Subject(tenant_id, conversation_id=UUID(last)))
    assert await unanswered.count_open(operators, tenant_id) == 3
    assert [group.title for group in await unanswered.list_groups(operators, tenant_id)] == [
        one.group.title for one in rest.groups
    ]
