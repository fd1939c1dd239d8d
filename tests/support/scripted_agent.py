"""An agent that streams what a visitor asks for, slowly, and counts what a model would cost."""

import asyncio
import re
from pathlib import Path

from hlas.agent import Answer, Listener, Question

_SCRIPT = re.compile(r"say (\d+) words in ([\d.]+) s")
RESUMED = "Here is the answer, without asking the model again."


def words(count: int) -> str:
    """The text of an answer, in which every word is another."""
    return " ".join(f"word{number}" for number in range(count))


class ScriptedAgent:
    """Answers `say 20 words in 0.5 s`. A second attempt must not cost anything."""

    def __init__(self, receipts: Path | None = None) -> None:
        """Each request that a provider would bill is a line of the file, and counted here."""
        self.requests = 0
        self._receipts = receipts

    async def answer(self, question: Question, listener: Listener) -> Answer:
        found = _SCRIPT.search(question.text)
        if question.attempt > 1 or found is None:
            return Answer(RESUMED, "knowledge", 1.0)
        self.requests += 1
        if self._receipts is not None:
            with self._receipts.open("a") as file:
                file.write(f"{question.text}\n")
        count, seconds = int(found[1]), float(found[2])
        for number in range(count):
            await asyncio.sleep(seconds / count)
            listener.say(("" if number == 0 else " ") + f"word{number}")
        return Answer(words(count), "agent", 1.0)
