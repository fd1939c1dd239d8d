"""Readers of live conversations: what each of them has seen, and what it gets next."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import orjson

from hlas.conversations import frames
from hlas.conversations.frames import Cursor, RunPosition
from hlas.store.db import Row

KEEP_ALIVE_SECONDS = 15.0

# Tenant and conversation.
Key: TypeAlias = tuple[str, str]


class Sink(Protocol):
    """Where the bytes of a stream go."""

    @property
    def unsent(self) -> int:
        """Bytes that are still on this side."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """A run under way and its frames so far."""

    reply_to: int
    attempt: int
    frames: list[str]
    # The number of the first frame in the last row that was read.
    last_number: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation as of one statement, as far as its readers have not seen it."""

    status: str | None
    handler: str
    last_seq: int
    # seq, the run and the attempt that made it if it is an agent's, and the frame.
    messages: list[tuple[int, str | None, str]]
    progress: Progress | None
    # The visitor has stopped answers up to that of this message.
    stopped_to: int = 0

    @classmethod
    def from_row(cls, row: Row, known: Progress | None = None) -> Self:
        """`known` is the text that was read before, which the row continues."""
        return cls(
            status=row["status"],
            handler=row["handler"],
            last_seq=row["last_seq"],
            messages=list(
                zip(row["seqs"] or (), row["runs"] or (), row["frames"] or (), strict=True)
            ),
            progress=_join(row, known) if row["reply_to"] else None,
            stopped_to=row["stopped_to"] or 0,
        )


def _join(row: Row, known: Progress | None) -> Progress:
    """The text so far, and the rows that were read now."""
    run, texts, last = (row["reply_to"], row["attempt"]), list[str](), 0
    if known is not None and (known.reply_to, known.attempt) == run:
        texts, last = list(known.frames), known.last_number
    for number, piece in zip(row["numbers"] or (), row["pieces"] or (), strict=True):
        if number > len(texts):
            break  # a crash of the database emptied the table: what follows has no beginning
        texts[number:] = piece.split("\n")
        last = number
    return Progress(*run, texts, last)


class Reader:
    """One open stream of a conversation."""

    __slots__ = (
        "_opened_at",
        "_run",
        "_seq",
        "_sink",
        "_state",
        "digest",
        "ends_at",
        "generation",
        "is_behind",
        "is_done",
        "key",
        "on_end",
        "paged_at",
        "written_at",
    )

    def __init__(
        self,
        key: Key,
        cursor: Cursor,
        ends_at: float = float("inf"),
        generation: int | None = None,
        digest: bytes | None = None,
    ) -> None:
        """`ends_at` is in seconds since the epoch; `generation` is that of a visitor's token.

        `digest` is that of an administrator's key or sign-in.
        """
        self.key = key
        self.digest = digest
        self.ends_at = ends_at
        self.generation = generation
        self.on_end: Callable[[], None] | None = None
        # It has what it came for.
        self.is_done = False
        # Until it has seen everything; and when it got its last page.
        self.is_behind = True
        self.paged_at = 0.0
        self._seq, self._run = cursor
        self._sink: Sink | None = None
        self._state = ""
        self._opened_at = self.written_at = time.monotonic()

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._opened_at

    def connect(self, sink: Sink) -> None:
        self._sink = sink
        self._write([frames.OPENING])

    def deliver(self, snapshot: Snapshot, spoken: Progress | None) -> None:
        """Send what is new; `spoken` is the run under way if this worker answers it."""
        out: list[bytes] = []
        for seq, run, frame in snapshot.messages:
            if seq == self._seq + 1:
                self._close_run(out, run, frame)
                self._seq = seq
                out.append(frames.event(frame, Cursor(seq, self._run)))
        if self._seq >= snapshot.last_seq:
            # If the page was cut short, the run's own message may be on the next page.
            self._follow_run(out, spoken or snapshot.progress)
            self._report_state(out, snapshot)
        self._write(out)

    def deliver_speech(self, progress: Progress) -> None:
        """Send text as it is made, without looking at the database."""
        if self._sink is not None and self._seq >= progress.reply_to:
            if self._run is not None and (
                self._run.reply_to != progress.reply_to or self._run.attempt > progress.attempt
            ):
                # The answer of the run before is on its way, or another worker took this one over.
                return
            out: list[bytes] = []
            self._follow_run(out, progress)
            self._write(out)

    def _close_run(self, out: list[bytes], run: str | None, message: str) -> None:
        """If the message is the answer of the run, send the rest of its text and its end."""
        seen = self._run
        if seen is None or run is None or run.partition(".")[0] != str(seen.reply_to):
            return
        is_same = run == f"{seen.reply_to}.{seen.attempt}"
        ending = frames.end_text(message, seen) if is_same else [frames.RESET]
        self._run = None
        out += [frames.event(frame, Cursor(self._seq)) for frame in ending]

    def _follow_run(self, out: list[bytes], progress: Progress | None) -> None:
        current = (progress.reply_to, progress.attempt) if progress else None
        if self._run is not None and self._run[:2] != current:
            self._run = None
            out.append(frames.event(frames.RESET, Cursor(self._seq)))
        if progress is None or progress.reply_to > self._seq:
            return
        run = self._run or RunPosition(progress.reply_to, progress.attempt)
        for frame in progress.frames[run.seen :]:
            self._run = run = run.move(frame)
            out.append(frames.event(frame, Cursor(self._seq, run)))

    def _report_state(self, out: list[bytes], snapshot: Snapshot) -> None:
        state = frames.encode(
            "data-state",
            data={"status": snapshot.status, "handler": snapshot.handler, "operator": None},
            transient=True,
        )
        if state != self._state:
            self._state = state
            out.append(frames.event(state, Cursor(self._seq, self._run)))

    def _write(self, out: list[bytes]) -> None:
        if out and self._sink is not None:
            self.written_at = time.monotonic()
            self._sink.write(b"".join(out))

    @property
    def is_drained(self) -> bool:
        """The client has taken what was sent."""
        return self._sink is None or not self._sink.unsent

    @property
    def is_silent(self) -> bool:
        """Nothing was sent for so long that a proxy might end the stream."""
        return time.monotonic() - self.written_at >= KEEP_ALIVE_SECONDS

    def keep_alive(self) -> None:
        self._write([frames.KEEP_ALIVE])

    def end(self) -> None:
        """The stream is over; the client may renew its token and resume."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()


class ListReader:
    """An administrator who follows a tenant's list of conversations."""

    __slots__ = ("changed", "digest", "ended", "tenant_id")

    def __init__(self, tenant_id: str, digest: bytes) -> None:
        self.tenant_id = tenant_id
        self.digest = digest
        self.changed = asyncio.Event()
        # What has changed since the client read the list is unknown.
        self.changed.set()
        self.ended = asyncio.Event()

    def end(self) -> None:
        self.ended.set()
        self.changed.set()


class AnswerReader(Reader):
    """Reads the answer to one message: the frames of its run, the stored answer, and no more."""

    __slots__ = ("_asked",)

    def __init__(self, key: Key, asked: int, ends_at: float, generation: int) -> None:
        """`asked` is the message's seq."""
        super().__init__(key, Cursor(asked), ends_at, generation)
        self._asked = asked

    def deliver(self, snapshot: Snapshot, spoken: Progress | None) -> None:
        out: list[bytes] = []
        for seq, run, frame in snapshot.messages:
            if seq == self._seq + 1 and not self.is_done:
                self._seq = seq
                # Others are messages of people, or answers to earlier messages.
                if run is not None and int(run.partition(".")[0]) >= self._asked:
                    self._finish(out, run, frame)
        if not self.is_done and self._seq >= snapshot.last_seq:
            if code := self._find_refusal(snapshot):
                self._refuse(out, code)
            else:
                self._follow_run(out, spoken or snapshot.progress)
        self._write(out)

    def _find_refusal(self, snapshot: Snapshot) -> str:
        """Why no answer will come; empty: it may come."""
        if snapshot.status != "open":
            return "conversation_closed"
        if snapshot.handler != "agent":
            return "taken_over"
        return "stopped" if snapshot.stopped_to >= self._asked else ""

    def _refuse(self, out: list[bytes], code: str) -> None:
        refusal = frames.encode("error", errorText=code)
        out += [frames.event(refusal, Cursor(self._seq)), frames.DONE]
        self.is_done = True

    def end(self) -> None:
        if not self.is_done and time.time() >= self.ends_at:
            out: list[bytes] = []
            self._refuse(out, "unavailable")
            self._write(out)
        super().end()

    def deliver_speech(self, progress: Progress) -> None:
        if progress.reply_to >= self._asked:
            super().deliver_speech(progress)

    def _follow_run(self, out: list[bytes], progress: Progress | None) -> None:
        if progress is None or progress.reply_to >= self._asked:
            super()._follow_run(out, progress)

    def _finish(self, out: list[bytes], run: str, frame: str) -> None:
        seen = self._run
        if seen is None or run != f"{seen.reply_to}.{seen.attempt}":
            reset = [frames.RESET] if seen else []
            message_id = orjson.loads(frame)["data"]["id"]
            start = frames.encode("start", messageId=message_id)
            out += [frames.event(one, Cursor(self._seq)) for one in (*reset, start)]
            seen = RunPosition(0, 0)
        out += [frames.event(one, Cursor(self._seq)) for one in frames.end_text(frame, seen)]
        out += [frames.event(frame, Cursor(self._seq)), frames.DONE]
        self.is_done = True
