"""How readers of a conversation share what is read: pages, text and keep-alives in turn."""

import time
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import uuid_utils

from hlas.conversations import live as lives
from hlas.conversations import topics
from hlas.conversations.frames import Cursor
from hlas.conversations.readers import KEEP_ALIVE_SECONDS, Key, Reader
from hlas.operators import sign_ins
from hlas.store.db import Database
from hlas.visitors.tokens import Session
from streams import Follower

NEVER = 1e9


class Sink:
    """A client that takes everything, unless `unsent` says otherwise."""

    def __init__(self) -> None:
        self.follower = Follower()
        self.unsent = 0
        self.written = 0
        self.comments = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self.comments += data.count(b": keep-alive")
        self.follower.feed(data)

    def close(self) -> None: ...

    @property
    def messages(self) -> int:
        return len(self.follower.messages)


class Worker:
    """The readers of a worker that reads when it is told to, and the rows that it has read."""

    def __init__(self, live: lives.Live, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live = live
        self.key: Key = session.tenant_id, session.conversation_id
        self.rows: list[Any] = []
        read = live._database.all

        async def note(query: str, *arguments: Any) -> list[Any]:
            rows = await read(query, *arguments)
            self.rows += rows
            return rows

        monkeypatch.setattr(live._database, "all", note)
        monkeypatch.setattr(live, "_serve", lambda _: None)

    def open(self, after: int) -> tuple[Reader, Sink]:
        reader, sink = Reader(self.key, Cursor(after)), Sink()
        # It has seen the messages before: the follower checks the order of the rest.
        sink.follower.messages = [{}] * after
        self.live.open(reader, sink)
        return reader, sink

    async def read(self) -> int:
        """Read once for all who wait; how many rows it took."""
        before = len(self.rows)
        dirty = self.live._dirty.pop(self.key[0], set())
        await self.live._read(self.key[0], dirty)
        return len(self.rows) - before


@pytest_asyncio.fixture
async def worker(
    session: Session,
    database: Database,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> Worker:
    live = lives.Live(str(uuid_utils.uuid4()))
    live.connect(database, operators, partial(sign_ins.find_valid, operators))
    return Worker(live, session, monkeypatch)


async def add_messages(operators: Database, key: Key, count: int, text: str = "hello") -> None:
    await operators.execute(
        """
        with counted as (
            update conversations set last_seq = last_seq + $3
            where tenant_id = $1 and id = $2
            returning last_seq
        )
        insert into messages (tenant_id, id, conversation_id, seq, role, content)
        select $1, gen_random_uuid(), $2, seq, 'user', $4
        from counted, generate_series(last_seq - $3 + 1, last_seq) as seq
        """,
        *key,
        count,
        text,
    )


async def test_new_message_beside_readers_from_the_start(
    worker: Worker, operators: Database
) -> None:
    """Whoever opens streams from the beginning all the time hides nothing from other readers."""
    await add_messages(operators, worker.key, 1_000)
    _, operator = worker.open(1_000)
    await worker.read()
    for number in range(1_001, 1_006):
        opened = [worker.open(0) for _ in range(8)]
        await add_messages(operators, worker.key, 1)
        worker.live.notice(worker.key)
        assert await worker.read() == 2, "one position for those at the end, one for the others"
        assert operator.messages == number
        assert [sink.messages for _, sink in opened] == [lives.PAGE_MESSAGES] * 8
        for reader, _ in opened:
            worker.live.leave(reader)


async def test_reader_behind_gets_page_by_page(
    worker: Worker, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page, and the next one when it is taken and the pause is over; in the end, everything."""
    await add_messages(operators, worker.key, 350)
    _, sink = worker.open(0)
    monkeypatch.setattr(topics, "PAGE_SECONDS", NEVER)
    pages = [await worker.read() for _ in range(3)]
    assert (pages, sink.messages) == ([1, 0, 0], 100)
    [topic] = worker.live._topics.values()
    topic._next_page_at = 0.0
    sink.unsent = 1
    await worker.live.tick()
    assert await worker.read() == 0
    sink.unsent = 0
    monkeypatch.setattr(topics, "PAGE_SECONDS", 0.0)
    await worker.live.tick()
    assert [await worker.read() for _ in range(4)] == [1, 1, 1, 0]
    assert sink.messages == 350
    assert worker.key not in worker.live._behind


async def test_opened_stream_sends_one_page(
    worker: Worker, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 50: an opened stream sends one page before the pause, however long it is."""
    await add_messages(operators, worker.key, 400, "ž" * 2_000)
    monkeypatch.setattr(topics, "PAGE_SECONDS", NEVER)
    written = 0
    for _ in range(10):
        reader, sink = worker.open(0)
        while await worker.read():
            pass
        written += sink.written
        worker.live.leave(reader)
    assert 0 < written < 10 * 1.2 * lives.PAGE_BYTES


async def test_readers_behind_take_turns(
    worker: Worker, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers at different places are served one after another."""
    await add_messages(operators, worker.key, 300)
    monkeypatch.setattr(topics, "PAGE_SECONDS", 0.0)
    sinks = [worker.open(after)[1] for after in (0, 10, 20)]
    for _ in range(20):
        assert await worker.read() <= 2
    assert [sink.messages for sink in sinks] == [300] * 3


async def test_text_is_read_once(worker: Worker, operators: Database) -> None:
    """A reader on another worker than the answer's reads only the text that is new."""
    await add_messages(operators, worker.key, 1)
    run_id = str(uuid4())
    await operators.execute(
        "insert into runs (tenant_id, id, conversation_id, first_seq, reply_to, epoch, state, "
        "attempt) values ($1, $3, $2, 1, 1, 0, 'running', 1)",
        *worker.key,
        run_id,
    )

    async def write(number: int, *deltas: str) -> None:
        frames = "\n".join(f'{{"type":"text-delta","id":"text","delta":"{one}"}}' for one in deltas)
        await operators.execute(
            "insert into run_frames (tenant_id, run_id, attempt, number, frames) "
            "values ($1, $2, 1, $3, $4) "
            "on conflict (tenant_id, run_id, attempt, number) do update set frames = $4",
            worker.key[0],
            run_id,
            number,
            frames,
        )

    _, sink = worker.open(0)
    for number in range(30):
        await write(number, f"{number} ")
        worker.live.notice(worker.key)
        await worker.read()
    # A row that was written again has the frames of before, and more.
    await write(29, "29 ", "30 ")
    await write(31, "31 ")
    worker.live.notice(worker.key)
    await worker.read()
    assert sink.follower.text == "".join(f"{number} " for number in range(32))
    assert sum(len(row["numbers"] or ()) for row in worker.rows) <= 2 * 31
    # One that comes later reads what the others know.
    _, late = worker.open(0)
    await worker.read()
    assert late.follower.text == sink.follower.text


async def test_keep_alives_are_spread(worker: Worker) -> None:
    """Streams that were opened together get their comments over several seconds, each in time."""
    opened = [worker.open(0) for _ in range(1_000)]
    await worker.read()
    long_ago = time.monotonic() - KEEP_ALIVE_SECONDS
    for number, (reader, _) in enumerate(opened):
        reader.written_at = long_ago - number
    sent = []
    for _ in range(int(KEEP_ALIVE_SECONDS / lives.CHECK_SECONDS)):
        await worker.live.check()
        sent.append(sum(sink.comments for _, sink in opened))
    assert sent[:7] == [150, 300, 450, 600, 750, 900, 1_000]
    assert {sink.comments for _, sink in opened} == {1}


async def test_looks_are_spread(worker: Worker) -> None:
    """So do the looks at conversations of which nothing was heard."""
    seen: list[int] = []
    for number in range(1_000):
        topic = worker.live._topics[worker.key[0], str(uuid4())] = topics.Topic()
        topic.checked_at -= KEEP_ALIVE_SECONDS + number
        topic.watchers.add(partial(seen.append, number))
    await worker.live.check()
    assert sorted(seen) == list(range(850, 1_000)), "those that waited longest"
    for _ in range(6):
        await worker.live.check()
    assert sorted(seen) == list(range(1_000))


def test_stream_that_opens_wakes_nobody(worker: Worker) -> None:
    """Who waits for an answer does not look again because somebody opens a stream."""
    woken: list[int] = []
    with worker.live.watch(worker.key, lambda: woken.append(1)):
        worker.open(0)
        assert woken == []
        worker.live.notice(worker.key)
        assert woken == [1]
