"""Live conversations: readers that see every message once, in order, and text as it is made.

A commit touches its conversation. Readers on this worker are served at once; workers learn about
each other's commits from the table `changes`, which each of them polls while it has readers. A
touch only says when to look: messages always come from the log in the database.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from itertools import islice
from typing import TypeAlias

import asyncpg

from hlas import errors, log
from hlas.conversations import runs
from hlas.conversations.readers import (
    KEEP_ALIVE_SECONDS,
    Key,
    ListReader,
    Progress,
    Reader,
    Sink,
    Snapshot,
)
from hlas.conversations.runs import Run
from hlas.conversations.speeches import Speech
from hlas.conversations.topics import Topic, take_oldest, take_turns
from hlas.store.db import Database, Queries, Row, columns

queries = Queries.beside(__file__)

TICK_SECONDS = 0.05
CHECK_SECONDS = 1.0
RETRY_SECONDS = 0.5
CLEANUP_SECONDS = 10.0
# A transaction takes its id before it commits: wait this long for lower ids.
SETTLE_SECONDS = 2.0
PAGE_MESSAGES = 100
PAGE_BYTES = 256 * 1024
# Statements for readers that run at once, so that routes find free connections.
STATEMENTS = 3
STATEMENT_CONVERSATIONS = 100
# Connections for leases, changes and checks, and how long a statement of theirs may take.
CONNECTIONS = 3
LIVE_STATEMENT_SECONDS = 1.5

# No text of a run is known; no message has the seq 0.
NOTHING_KNOWN = Progress(0, 0, [])

# Finds those of some digests that belong to a valid key or sign-in of an administrator.
FindValid: TypeAlias = Callable[[Collection[bytes]], Awaitable[set[bytes]]]


class Live:
    """The readers of one worker, and what it tells the others."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._topics: dict[Key, Topic] = {}
        self._speeches: dict[Key, Speech] = {}
        # Conversations whose readers have something to read, by tenant.
        self._dirty: defaultdict[str, set[str]] = defaultdict(set)
        # Conversations with readers that have more to read than a page.
        self._behind: set[Key] = set()
        self._serving: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(STATEMENTS)
        # Conversations that changed here, for the other workers.
        self._touched: dict[Key, None] = {}
        self._position: int | None = None
        # Changes after the position that were seen, and when.
        self._seen: dict[int, float] = {}
        self.is_closing = False
        self._lists: defaultdict[str, set[ListReader]] = defaultdict(set)

    def connect(self, database: Database, operators: Database, find_valid: FindValid) -> None:
        self._database = database
        self._operators = operators
        self._find_valid = find_valid

    @property
    def open_streams(self) -> int:
        return sum(len(topic.readers) for topic in self._topics.values())

    def touch(self, tenant_id: str, conversation_id: str) -> None:
        """This worker has changed a conversation."""
        key = tenant_id, conversation_id
        self._touched[key] = None
        self.notice(key)

    def notice(self, key: Key) -> None:
        """A conversation may have changed: those who follow it here look at it."""
        for follower in self._lists.get(key[0], ()):
            follower.changed.set()
        topic = self._topics.get(key)
        if topic is not None:
            for watcher in tuple(topic.watchers):
                watcher()
            self._look(key)

    def _look(self, key: Key) -> None:
        """Read the conversation for its readers."""
        tenant_id, conversation_id = key
        topic = self._topics.get(key)
        if topic is not None and topic.readers:
            self._dirty[tenant_id].add(conversation_id)
            self._serve(tenant_id)

    @contextmanager
    def watch(self, key: Key, watcher: Callable[[], None]) -> Iterator[None]:
        """Call `watcher` whenever the conversation may have changed."""
        topic = self._topics.setdefault(key, Topic())
        topic.watchers.add(watcher)
        try:
            yield
        finally:
            topic.watchers.discard(watcher)
            self._drop_empty(key)

    @contextmanager
    def watch_list(self, follower: ListReader) -> Iterator[None]:
        """Tell it whenever one of the tenant's conversations may have changed."""
        followers = self._lists[follower.tenant_id]
        followers.add(follower)
        if self.is_closing:
            follower.end()
        try:
            yield
        finally:
            followers.discard(follower)
            if not followers:
                del self._lists[follower.tenant_id]

    def open(self, reader: Reader, sink: Sink) -> None:
        """Serve a reader from its cursor on, until it ends or leaves."""
        self._topics.setdefault(reader.key, Topic()).readers.add(reader)
        reader.connect(sink)
        if self.is_closing:
            self.leave(reader)
        self._behind.add(reader.key)
        # Nothing has changed for those who wait for an answer.
        self._look(reader.key)

    def leave(self, reader: Reader) -> None:
        """The reader has gone, or is told to go."""
        topic = self._topics.get(reader.key)
        if topic is not None and reader in topic.readers:
            topic.readers.discard(reader)
            self._drop_empty(reader.key)
            reader.end()
            if reader.on_end is not None:
                reader.on_end()

    def _drop_empty(self, key: Key) -> None:
        topic = self._topics.get(key)
        if topic is not None and not topic.readers and not topic.watchers:
            del self._topics[key]

    def speak(self, run: Run, message_id: str) -> Speech:
        """Begin the text of a run."""
        speech = Speech(run, message_id, self.relay)
        self._speeches[speech.key] = speech
        self.relay(speech)
        return speech

    def relay(self, speech: Speech) -> None:
        topic = self._topics.get(speech.key)
        if topic is not None:
            # One that does not read leaves while it is written to.
            for reader in tuple(topic.readers):
                reader.deliver_speech(speech.progress)

    def hush(self, speech: Speech) -> None:
        """The run has ended, or is not this worker's any more."""
        speech.end()
        if self._speeches.get(speech.key) is speech:
            del self._speeches[speech.key]

    def _serve(self, tenant_id: str) -> None:
        if tenant_id not in self._serving:
            self._serving.add(tenant_id)
            task = asyncio.create_task(self._serve_tenant(tenant_id), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve_tenant(self, tenant_id: str) -> None:
        """One statement at a time for a tenant, for all of its conversations that changed."""
        try:
            while waiting := self._dirty.pop(tenant_id, None):
                # A few at a time: all readers may wait at once, and a statement has a time limit.
                conversations = set(islice(waiting, STATEMENT_CONVERSATIONS))
                if rest := waiting - conversations:
                    self._dirty[tenant_id] |= rest
                try:
                    async with self._turns:
                        await self._read(tenant_id, conversations)
                except errors.Unavailable:
                    self._dirty[tenant_id] |= conversations
                    await asyncio.sleep(RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001  # one tenant must not stop the others
            # `check` reads again within 26 s.
            log.error("live_failed", error=type(error).__name__, where=log.find_place(error))
        finally:
            self._serving.discard(tenant_id)

    async def _read(self, tenant_id: str, conversations: set[str]) -> None:
        wanted: list[tuple[object, ...]] = []
        for conversation_id in conversations:
            topic = self._topics.get((tenant_id, conversation_id))
            if topic is not None:
                known = topic.progress or NOTHING_KNOWN
                text = known.reply_to, known.attempt, known.last_number
                wanted += [(conversation_id, after, *text) for after in topic.list_positions()]
        if wanted:
            rows = await self._database.all(
                queries.read_changes, tenant_id, *columns(wanted), PAGE_MESSAGES, PAGE_BYTES
            )
            for row in rows:
                self._deliver((tenant_id, row["id"]), row)

    def _deliver(self, key: Key, row: Row) -> None:
        topic = self._topics.get(key)
        if topic is None:
            return
        snapshot = Snapshot.from_row(row, topic.progress)
        topic.checked_at = time.monotonic()
        topic.progress = snapshot.progress
        for reader in tuple(topic.readers):
            if snapshot.status is None or reader.seq > snapshot.last_seq:
                # Erased, or shorter than what the reader has seen.
                self.leave(reader)
        for reader in topic.list_served(row["after"]):
            reader.deliver(snapshot, self._find_spoken(key, snapshot))
            if reader.is_done:
                self.leave(reader)
            else:
                topic.note_page(reader, snapshot)
        self._page(key, topic)

    def _page(self, key: Key, topic: Topic) -> None:
        """Read on for those who are behind, as soon as they may have the next page."""
        if not topic.has_readers_behind:
            self._behind.discard(key)
            return
        self._behind.add(key)
        if topic.is_page_due:
            self._look(key)

    def _find_spoken(self, key: Key, snapshot: Snapshot) -> Progress | None:
        """Our own text of the run under way: it is newer than what the table has."""
        speech, progress = self._speeches.get(key), snapshot.progress
        if speech is None or progress is None:
            return None
        spoken = speech.progress
        is_same = (progress.reply_to, progress.attempt) == (spoken.reply_to, spoken.attempt)
        return spoken if is_same else None

    async def tick(self) -> None:
        """Tell the other workers what changed here, and learn what changed there."""
        for key in tuple(self._behind):
            topic = self._topics.get(key)
            if topic is None:
                self._behind.discard(key)
            else:
                self._page(key, topic)
        await self._flush()
        await self._publish()
        if self._topics or self._lists:
            await self._poll()
        else:
            self._position = None

    async def _flush(self) -> None:
        """Write the text of all runs of this worker in one statement."""
        speaking = tuple(self._speeches.values())
        rows = {speech: row for speech in speaking if (row := speech.list_unflushed())}
        if rows:
            await runs.write_frames(self._operators, tuple(rows.values()))
            for speech, row in rows.items():
                speech.mark_flushed(row)
                self._touched[speech.key] = None

    async def _publish(self) -> None:
        if self._touched:
            touched, self._touched = self._touched, {}
            tenants, conversations = (list(column) for column in zip(*touched, strict=True))
            try:
                await self._operators.execute(
                    queries.publish_changes, tenants, conversations, self.worker
                )
            except BaseException:
                self._touched |= touched
                raise

    async def _poll(self) -> None:
        if self._position is None:
            row = await self._operators.one(queries.last_change)
            assert row is not None
            self._position, self._seen = row["id"], {}
            # Something may have changed before this position was known.
            for key in tuple(self._topics):
                self.notice(key)
            for follower in self._list_followers():
                follower.changed.set()
            return
        rows = await self._operators.all(queries.read_published, self._position, list(self._seen))
        now = time.monotonic()
        for row in rows:
            self._seen[row["id"]] = now
            if row["worker"] != self.worker:
                self.notice((row["tenant_id"], row["conversation_id"]))
        self._position = self._advance(self._position, now)

    def _advance(self, position: int, now: float) -> int:
        """Up to where all changes are known: to the first gap, or past one that has settled."""
        settled = [number for number, at in self._seen.items() if at < now - SETTLE_SECONDS]
        position = max((position, *settled))
        while position + 1 in self._seen:
            position += 1
        self._seen = {number: at for number, at in self._seen.items() if number > position}
        return position

    def _list_readers(self) -> list[Reader]:
        return [reader for topic in self._topics.values() for reader in topic.readers]

    def _list_followers(self) -> list[ListReader]:
        return [follower for followers in self._lists.values() for follower in followers]

    async def check(self) -> None:
        """End streams whose session or sign-in is over, keep the others alive."""
        now = time.time()
        for reader in self._list_readers():
            if reader.ends_at <= now:
                self.leave(reader)
        readers = self._list_readers()
        silent = [reader for reader in readers if reader.is_silent]
        oldest = take_oldest(silent, len(readers), lambda reader: reader.written_at)
        async for reader in take_turns(oldest):
            reader.keep_alive()
        await self._look_again()
        # Last: tokens expire even if the database is away, which the supervisor reports.
        await self._end_refused()

    async def _end_refused(self) -> None:
        readers = self._list_readers()
        followers = self._list_followers()
        tenants = {reader.key[0] for reader in readers} | self._lists.keys()
        if not tenants:
            return
        rows = await self._operators.all(queries.standing, list(tenants))
        generations = {row["id"]: row["token_generation"] for row in rows}
        digests = {reader.digest for reader in readers if reader.digest is not None}
        digests |= {follower.digest for follower in followers}
        valid = await self._find_valid(digests) if digests else set()
        for reader in readers:
            generation = generations.get(reader.key[0])
            is_current = generation is not None and reader.generation in {None, generation}
            is_valid = reader.digest is None or reader.digest in valid
            if not (is_current and is_valid):
                self.leave(reader)
        for follower in followers:
            if follower.tenant_id not in generations or follower.digest not in valid:
                follower.end()

    async def _look_again(self) -> None:
        """A change may have gone unnoticed, as when a worker died before it could publish it."""
        old = time.monotonic() - KEEP_ALIVE_SECONDS
        due = [(key, topic) for key, topic in self._topics.items() if topic.checked_at < old]
        oldest = take_oldest(due, len(self._topics), lambda one: one[1].checked_at)
        async for key, topic in take_turns(oldest):
            topic.checked_at = time.monotonic()
            self.notice(key)

    @staticmethod
    async def clean_up(operators: Database) -> None:
        await operators.execute(queries.delete_changes)
        await runs.delete_frames(operators)

    def end_streams(self) -> None:
        """The worker stops: clients resume elsewhere, at once."""
        self.is_closing = True
        for follower in self._list_followers():
            follower.end()
        for reader in self._list_readers():
            self.leave(reader)

    async def close(self) -> None:
        self.end_streams()
        self._dirty.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The last changes; readers elsewhere would find them by themselves, but later.
        with suppress(errors.Unavailable, asyncpg.PostgresError):
            await self._publish()
