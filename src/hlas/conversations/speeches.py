"""Answers in the making: the text of a run, in frames."""

import asyncio
import time
from collections.abc import Callable
from contextvars import Context

from hlas.conversations import frames
from hlas.conversations.readers import Key, Progress
from hlas.conversations.runs import FrameRow, Run

# A model's words come one by one: readers get them in pieces.
PIECE_SECONDS = 0.05


class Speech:
    """A run of this worker, in the making: its frames for readers here and elsewhere."""

    def __init__(self, run: Run, message_id: str, relay: "Callable[[Speech], None]") -> None:
        """`relay` gives new frames to the readers of this worker."""
        self._relay = relay
        self.run = run
        self.message_id = message_id
        self.text = ""
        self.first_words_at = 0.0
        self._flushed = 0
        # Text that readers have not been given yet, and the timer that gives it to them.
        self._pending = ""
        self._pause: asyncio.TimerHandle | None = None
        start = frames.encode("start", messageId=message_id)
        self.progress = Progress(run.reply_to, run.attempt, [start])

    @property
    def key(self) -> Key:
        return self.run.tenant_id, self.run.conversation_id

    def say(self, piece: str) -> None:
        """Add a piece to the answer. The first one leaves at once, others every PIECE_SECONDS."""
        if not self.text:
            self.first_words_at = self.first_words_at or time.perf_counter()
            self.progress.frames.append(frames.TEXT_START)
        self.text += piece
        self._pending += piece
        if self._pause is None:
            self._release()

    def show(self, frame: str) -> None:
        """Add another frame, after the text so far."""
        self._send_pending()
        self._append(frame)

    def complete(self, text: str) -> bool:
        """Say the rest of an answer; False: what was said is not the beginning of it."""
        if not text.startswith(self.text):
            return False
        if rest := text[len(self.text) :]:
            self.say(rest)
        self._send_pending()
        return True

    def end(self) -> None:
        if self._pause is not None:
            self._pause.cancel()

    def _release(self) -> None:
        self._pause = None
        if self._pending:
            self._send_pending()
            self._pause = asyncio.get_running_loop().call_later(
                PIECE_SECONDS, self._release, context=Context()
            )

    def _send_pending(self) -> None:
        if self._pending:
            delta, self._pending = self._pending, ""
            self._append(frames.encode("text-delta", id=frames.TEXT, delta=delta))

    def _append(self, frame: str) -> None:
        self.progress.frames.append(frame)
        self._relay(self)

    def list_unflushed(self) -> FrameRow | None:
        """The frames that other workers cannot see yet."""
        run, pieces = self.run, self.progress.frames[self._flushed :]
        if not pieces:
            return None
        return FrameRow(run.tenant_id, run.id, run.attempt, self._flushed, "\n".join(pieces))

    def mark_flushed(self, row: FrameRow) -> None:
        self._flushed = row.number + row.frames.count("\n") + 1
