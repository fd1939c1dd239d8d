"""What a model writes, through the guard to whoever listens."""

from collections.abc import Sequence

from hlas.agent import Listener, Source
from hlas.agent.filter.guard import Guard
from hlas.agent.prompts import Passage
from hlas.conversations import frames

BETWEEN_STEPS = "\n\n"


class Speaker:
    """The text of one answer. CanaryTripped leaves it when the model gives its secret away."""

    def __init__(self, listener: Listener, guard: Guard) -> None:
        self._listener = listener
        self._guard = guard
        self.text = ""
        self._blanks = ""
        # The model has written something, perhaps still held back, and another step has begun.
        self._has_written = False
        self._is_new_step = False

    def start_step(self) -> None:
        self._is_new_step = self._has_written

    def hear(self, piece: str) -> None:
        """A piece as the model writes it."""
        if not piece:
            return
        if self._is_new_step:
            self._is_new_step = False
            self.say(self._guard.feed(BETWEEN_STEPS))
        self._has_written = True
        self.say(self._guard.feed(piece))

    def say(self, text: str) -> None:
        """Show text that needs no guard; blanks wait until something follows them."""
        text = self._blanks + text if self.text else text.lstrip()
        shown = text.rstrip()
        self._blanks = text[len(shown) :]
        if shown:
            self.text += shown
            self._listener.say(shown)

    def end(self) -> None:
        """Show what the guard has held back."""
        self.say(self._guard.finish())

    def add(self, passages: Sequence[Passage]) -> None:
        """Passages that a tool has found."""
        self._guard.add(passages)

    def list_cited(self) -> list[Passage]:
        return self._guard.cited

    def show_tool(self, call_id: str, name: str) -> None:
        self._listener.show(
            frames.encode("tool-input-available", toolCallId=call_id, toolName=name, input={})
        )

    def hide_tool(self, call_id: str) -> None:
        self._listener.show(frames.encode("tool-output-available", toolCallId=call_id, output={}))

    def show_sources(self, sources: Sequence[Source]) -> None:
        show_sources(self._listener, sources)


def show_sources(listener: Listener, sources: Sequence[Source]) -> None:
    for source in sources:
        if source.url:
            listener.show(
                frames.encode(
                    "source-url", sourceId=str(source.number), url=source.url, title=source.title
                )
            )
