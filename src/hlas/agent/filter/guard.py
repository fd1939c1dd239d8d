"""The guard between the model and the visitor: no foreign link, no image, no secret passes.

The model is taken to be hostile. Text goes through five stages: characters and entities, tags,
brackets, words, release. Each gives the same output however the text is cut into pieces, so the
whole does. What the guard's output may contain:

- `[text](address)` and bare addresses, only with allowed hosts, http or https. A foreign Markdown
  link leaves its text, an image its alternative text, a foreign bare address `…`. A bare host name
  with a common ending gets a space (`evil. com`): that no program makes a link of.
- E-mail addresses as plain text. `mailto:` and `tel:` only with a contact that stands in a passage.
- `[n]` for passages that were supplied.

Code is treated like other text: not every front end shows it without links.
"""

import re
from collections.abc import Iterable

from hlas.agent.filter.brackets import LINE_PREFIX, Brackets
from hlas.agent.filter.canary import Canary, CanaryTripped, fold
from hlas.agent.filter.links import (
    CITE,
    CITE_END,
    LINK,
    LINK_END,
    LINK_URL,
    LONGEST_HELD,
    Links,
    Words,
)
from hlas.agent.filter.markup import Characters, Tags
from hlas.agent.prompts import Passage

__all__ = ["CanaryTripped", "Guard"]

_MARKDOWN = {LINK: "[", LINK_URL: "](", LINK_END: ")", CITE: "[", CITE_END: "]"}
# Words that need no look at each character unless the secret may be in them.
_PLAIN = re.compile(r"[\w ,.;'\"*-]*")


class Guard:
    """One for each answer. After CanaryTripped it says nothing more."""

    def __init__(self, hosts: Iterable[str], canary: str, passages: Iterable[Passage]) -> None:
        self.cited: list[Passage] = []
        self._passages: dict[int, Passage] = {}
        self._links = Links(hosts)
        self._characters = Characters()
        self._tags = Tags()
        self._brackets = Brackets(self._links, self._cite)
        self._words = Words(self._links)
        self._release = _Release(canary)
        self._is_tripped = False
        self.add(passages)

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages that a tool has found: they may be cited, and linked to."""
        for passage in passages:
            self._passages[passage.number] = passage
            self._links.allow(passage.url, passage.text)

    def feed(self, piece: str) -> str:
        """Return what may be shown now."""
        text = self._tags.feed(self._characters.feed(piece))
        return self._let_out(self._words.feed(self._brackets.feed(text)))

    def finish(self) -> str:
        """Return the rest, with unfinished constructs as text."""
        text = self._tags.feed(self._characters.finish()) + self._tags.finish()
        text = self._brackets.feed(text) + self._brackets.finish()
        text = self._words.feed(text) + self._words.finish()
        return self._let_out(text) + self._release.finish()

    def _let_out(self, text: str) -> str:
        if self._is_tripped:
            raise CanaryTripped
        try:
            return self._release.feed(text)
        except CanaryTripped:
            self._is_tripped = True
            raise

    def _cite(self, number: int) -> bool:
        """Whether the passage was supplied; if so, record it."""
        passage = self._passages.get(number)
        if passage is not None and passage not in self.cited:
            self.cited.append(passage)
        return passage is not None


class _Release:
    """Writes Markdown, keeps apart what must not touch, and holds back what may be the secret."""

    def __init__(self, canary: str) -> None:
        # The secret may be in what is written, or in what a reader sees of it.
        self._written = Canary(canary)
        self._seen = Canary(canary)
        self._held: list[str] = []
        self._last = "\n"
        self._is_hidden = False
        self._is_line_start = True
        self._is_label = False

    def feed(self, text: str) -> str:
        if self._skip(text):
            return text
        out: list[str] = []
        for character in text:
            if character in _MARKDOWN:
                self._mark(character)
            else:
                if self._must_part(character):
                    self._write(" ")
                self._write(character)
            if not (self._written.is_near or self._seen.is_near) or len(self._held) > LONGEST_HELD:
                out += self._held
                self._held.clear()
        return "".join(out)

    def finish(self) -> str:
        held, self._held = self._held, []
        return "".join(held)

    def _skip(self, text: str) -> bool:
        """Whether all of the text may be shown as it is; the result is that of the long way."""
        if not text or self._held or self._is_hidden or self._last == "<":
            return False
        if not _PLAIN.fullmatch(text):
            return False
        letters = "".join(filter(str.isalnum, text))
        letters = letters.lower() if letters.isascii() else fold(letters)
        if not (self._written.is_clear(letters) and self._seen.is_clear(letters)):
            return False
        self._written.skip(letters)
        self._seen.skip(letters)
        if self._is_line_start and not LINE_PREFIX.fullmatch(text):
            self._is_line_start = False
        self._last = text[-1]
        return True

    def _mark(self, mark: str) -> None:
        self._is_hidden = mark in {LINK_URL, CITE}
        # An escaped bracket opens no link, one after an exclamation mark opens an image.
        if mark in {LINK, CITE} and self._last in "!\\":
            self._write(" ")
        for character in _MARKDOWN[mark]:
            self._write(character)

    def _must_part(self, character: str) -> bool:
        """Whether the character would begin a link, a definition, an image or a tag."""
        last = self._last
        return (
            (last == "]" and (character == "(" or (character == ":" and self._is_label)))
            or (last == "!" and character == "[")
            or (last == "<" and (character.isalpha() or character in "/!?"))
        )

    def _write(self, character: str) -> None:
        if character == "\n":
            self._is_line_start = True
            # A label may go on in the next line, but not over an empty one.
            self._is_label = self._is_label and self._last != "\n"
        elif self._is_line_start and not LINE_PREFIX.fullmatch(character):
            self._is_line_start = False
            self._is_label = self._is_label or character == "["
        self._last = character
        self._held.append(character)
        self._written.read(character)
        if not self._is_hidden:
            self._seen.read(character)
