"""Agents that speak word by word: when a test tells them to, or at a pace of their own."""

import asyncio
import random
from typing import Any, NamedTuple

from factories import Live
from hlas.agent import Answer, Listener, Question
from hlas.conversations import frames


class _Frame(NamedTuple):
    json: str


class _End(NamedTuple):
    # Fields of the answer besides its text.
    fields: dict[str, Any]


class Speaker:
    """Says what a test tells it to say, when it is told."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self._pieces: asyncio.Queue[str | _Frame | _End] = asyncio.Queue()

    @classmethod
    def take_over(cls, live: Live) -> "Speaker":
        """Answer visitors in place of the server's own agent."""
        speaker = cls()
        live.app.state.services.runner._agent = speaker
        return speaker

    def say(self, text: str) -> None:
        """Word by word."""
        words = text.split(" ")
        for word in [f"{word} " for word in words[:-1]] + words[-1:]:
            self._pieces.put_nowait(word)

    def show(self, kind: str, **fields: object) -> None:
        """A frame other than text."""
        self._pieces.put_nowait(_Frame(frames.encode(kind, **fields)))

    def finish(self, **fields: Any) -> None:
        self._pieces.put_nowait(_End(fields))

    async def answer(self, question: Question, listener: Listener) -> Answer:
        self.questions.append(question.text)
        text = ""
        while True:
            piece = await self._pieces.get()
            if isinstance(piece, _End):
                return Answer(text, "agent", 1.0, **piece.fields)
            if isinstance(piece, _Frame):
                listener.show(piece.json)
            else:
                listener.say(piece)
                text += piece
            await asyncio.sleep(0.005)


class Chatter:
    """Repeats the question slowly enough for a connection to break meanwhile."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    @classmethod
    def take_over(cls, live: Live, chance: random.Random) -> None:
        live.app.state.services.runner._agent = cls(chance)

    async def answer(self, question: Question, listener: Listener) -> Answer:
        text = ""
        for word in f"You said {question.text!r} and I have to think about it.".split(" "):
            piece = f" {word}" if text else word
            listener.say(piece)
            text += piece
            await asyncio.sleep(self._chance.uniform(0, 0.05))
        return Answer(text, "agent", 1.0)
