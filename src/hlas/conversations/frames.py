"""The frames of a stream: server-sent events as in the AI SDK's UI message stream v1."""

from typing import NamedTuple

import orjson

EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx passes the stream on as it comes.
    (b"x-accel-buffering", b"no"),
)
HEADERS = (*EVENT_STREAM, (b"x-vercel-ai-ui-message-stream", b"v1"))
# How long a browser waits before it connects again.
OPENING = b"retry: 1000\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

TEXT = "text"
LAST_SEQ = 2_147_483_647


def encode(kind: str, **fields: object) -> str:
    """One frame as JSON."""
    return orjson.dumps({"type": kind, **fields}).decode()


# The AI SDK refuses a data frame without data.
RESET = encode("data-reset", data={}, transient=True)
TEXT_START = encode("text-start", id=TEXT)
TEXT_END = encode("text-end", id=TEXT)
FINISH = encode("finish")
# What a client of the AI SDK waits for at the end of a single answer.
DONE = b"data: [DONE]\n\n"


class RunPosition(NamedTuple):
    """How much of an attempt at a run a reader has seen: how many frames, and of its text."""

    # The seq that the run answers, which no other run of the conversation has.
    reply_to: int
    attempt: int
    seen: int = 0
    # 0 before the text has started, then one more than its characters.
    said: int = 0

    def move(self, frame: str) -> "RunPosition":
        """The position after one more frame."""
        said = self.said
        if frame == TEXT_START:
            said = 1
        elif frame.startswith('{"type":"text-delta"'):
            said += len(orjson.loads(frame)["delta"])
        return self._replace(seen=self.seen + 1, said=said)


class Cursor(NamedTuple):
    """What a reader has seen: every message up to `seq`, and perhaps a part of a run."""

    seq: int
    run: RunPosition | None = None

    def __str__(self) -> str:
        return ".".join(map(str, (self.seq, *(self.run or ()))))

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """None: not a cursor of ours."""
        parts = text.split(".")
        if not all(map(_is_number, parts)) or len(parts) not in {1, 5}:
            return None
        seq, *run = map(int, parts)
        return cls(seq, RunPosition(*run) if run else None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= LAST_SEQ


def event(frame: str, cursor: Cursor) -> bytes:
    return b"id: %b\ndata: %b\n\n" % (str(cursor).encode(), frame.encode())


def end_text(message: str, run: RunPosition) -> list[str]:
    """The frames that end a run; its last words may not have reached this worker before."""
    rest = orjson.loads(message)["data"]["content"][max(run.said - 1, 0) :]
    start = [] if run.said else [TEXT_START]
    delta = [encode("text-delta", id=TEXT, delta=rest)] if rest else []
    return [*start, *delta, TEXT_END, FINISH]
