"""Resolves links, images, references, definitions and citations in the Markdown of an answer."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from hlas.agent.filter.links import CITE, CITE_END, LINK, LINK_END, LINK_URL, LONGEST_HELD, Links

MOST_NESTED = 8

# What may stand before the first word of a line, in lists and quotations.
LINE_PREFIX = re.compile(r"[ \t>*+\-0-9.)]*")
_PIECES = re.compile(r"[\[\]()!: \n【】]|[^\[\]()!: \n【】]+")
# Possessive, so that it is linear in the blanks.
_NUMBERS = re.compile(r"\s*+(?:\^\s*+)?(\d{1,9}(?:\s*+[,;]\s*+\d{1,9})*+)\s*+(?:†[^\[\]]*)?")
_TARGET = re.compile(r"[/\\#:@]|\w\.\w")
_BRACKETS = str.maketrans("", "", "[]")


@dataclass(slots=True)
class _Frame:
    """Text between brackets. `lead`: spaces or an exclamation mark before it."""

    opener: str
    lead: str
    is_line_start: bool
    follows_word: bool
    # The closed bracket right before this one: `[text][reference]`.
    before: "_Frame | None" = None
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def is_image(self) -> bool:
        return self.lead == "!"

    def write_text(self) -> str:
        return self.text if self.is_image else self.lead + self.text

    def write(self) -> str:
        return f"{self.lead}{self.opener}{self.text}{']' if self.opener == '[' else '】'}"


@dataclass(slots=True)
class _Target:
    """The part in parentheses of a link: address, then perhaps a title."""

    raw: str = ""
    url: str = ""
    depth: int = 0
    # What ends the title; a space: the address has ended.
    quote: str = ""
    is_title_over: bool = False

    def take(self, character: str) -> bool | None:
        """True: the target is complete; None: it is none."""
        is_space = character in " \t"
        if character in "[]\n" or len(self.raw) > LONGEST_HELD:
            return None
        self.raw += character
        if self.is_title_over:
            return self._close(character, is_space=is_space)
        if self.quote.strip():
            self.is_title_over = character == self.quote
            return False
        if self.quote:
            if character in "\"'(":
                self.quote = ")" if character == "(" else character
                return False
            return self._close(character, is_space=is_space)
        return self._take_address(character, is_space=is_space)

    def _take_address(self, character: str, *, is_space: bool) -> bool:
        if is_space:
            self.quote = " " if self.url else ""
            return False
        if character == ")" and not self.depth:
            return True
        self.depth += (character == "(") - (character == ")")
        self.url += character
        return False

    @staticmethod
    def _close(character: str, *, is_space: bool) -> bool | None:
        return True if character == ")" else False if is_space else None


class Brackets:
    """Resolves links, images, references, definitions and citations."""

    def __init__(self, links: Links, cite: Callable[[int], bool]) -> None:
        self._links = links
        self._cite = cite
        self._out: list[str] = []
        self._stack: list[_Frame] = []
        self._held = 0
        self._lead = ""
        self._last = ""
        self._closed: _Frame | None = None
        self._target: _Target | None = None
        self._definition: str | None = None
        self._is_skipping = False
        self._is_line_start = True

    def feed(self, text: str) -> str:
        for piece in _PIECES.findall(text):
            if self._closed or self._is_skipping:
                for character in piece:
                    self._step(character)
            else:
                self._take(piece)
        return self._drain()

    def finish(self) -> str:
        self._flush()
        self._text("")
        return self._drain()

    def _drain(self) -> str:
        out, self._out = "".join(self._out), []
        return out

    def _step(self, character: str) -> None:
        """Take one character, in whatever state."""
        if self._is_skipping:
            self._is_skipping = character != "\n"
        if self._is_skipping:
            return
        if self._definition is not None:
            self._take_definition(character)
        elif self._target is not None:
            self._take_target(character)
        else:
            self._take(character)

    def _take(self, piece: str) -> None:
        if self._closed and self._continue(self._closed, piece):
            return
        if piece in {"[", "【"}:
            self._open(piece, None)
        elif self._stack and piece == ("]" if self._stack[-1].opener == "[" else "】"):
            self._close()
        elif piece == "\n":
            self._flush()
            self._text(piece)
            self._is_line_start = True
        elif piece == " " and len(self._lead) <= LONGEST_HELD and self._lead != "!":
            self._lead += piece
        elif piece in {"!", " "}:
            self._text("")
            self._lead = piece
        else:
            self._text(piece)

    def _continue(self, closed: _Frame, piece: str) -> bool:
        """Whether the piece belongs to the bracket that was just closed; if not, settle it."""
        if piece == "(":
            self._target = _Target()
            return True
        if piece == ":" and closed.is_line_start:
            self._definition = ""
            return True
        if piece == "[" and closed.before is None and _read_numbers(closed.text) is None:
            self._closed = None
            self._open(piece, closed)
            return True
        self._settle()
        return False

    def _open(self, opener: str, before: _Frame | None) -> None:
        if len(self._stack) == MOST_NESTED:
            self._flush()
        follows_word = not self._lead and self._last.isalnum()
        self._stack.append(
            _Frame(opener, self._lead, self._is_line_start and not before, follows_word, before)
        )
        self._lead = ""
        self._is_line_start = False

    def _close(self) -> None:
        self._text("")
        self._closed = self._stack.pop()
        if self._closed.opener == "【":
            self._settle()

    def _settle(self) -> None:
        """Write a closed bracket that is not a link."""
        frame, self._closed = self._closed, None
        if frame is None:
            return
        before, numbers = frame.before, _read_numbers(frame.text)
        if numbers is not None:
            cited = "".join(f"{CITE}{number}{CITE_END}" for number in numbers if self._cite(number))
            lead = frame.lead if cited or frame.is_image else ""
            self._put((before.write() if before else "") + lead + cited)
        elif before is None:
            self._put(frame.write())
        elif before.follows_word and not before.is_image:
            self._put(before.write() + frame.write())
        else:
            self._put(before.write_text())

    def _take_target(self, character: str) -> None:
        target, frame = self._target, self._closed
        assert target is not None
        assert frame is not None
        is_complete = target.take(character)
        if is_complete is False:
            return
        self._target = None
        if is_complete is None or _read_numbers(frame.text) is not None:
            self._settle()
            if is_complete is None:
                self._text(f"({target.raw}")
                self._take(character)
            return
        self._closed = None
        if frame.before:
            self._put(frame.before.write())
        url = None if frame.is_image else self._links.accept(target.url)
        label = frame.text.translate(_BRACKETS).strip()
        if url is None or not label or LINK in label or CITE in label:
            self._put(frame.write_text())
        else:
            self._put(f"{frame.lead}{LINK}{label}{LINK_URL}{url}{LINK_END}")

    def _take_definition(self, character: str) -> None:
        """Take what follows `[label]:` at the beginning of a line, up to its first word's end."""
        text = self._definition or ""
        is_end = character in "\n[" or (character in " \t" and text.strip() != "")
        if not is_end and len(text) <= LONGEST_HELD:
            self._definition = text + character
            return
        self._end_definition()
        self._step(character)

    def _end_definition(self) -> None:
        text, frame = self._definition or "", self._closed
        assert frame is not None
        self._definition = None
        if _TARGET.search(text):
            self._closed = None
            self._is_skipping = True
        elif _read_numbers(frame.text) is None:
            self._closed = None
            self._put(f"{frame.write_text()}:{text}")
        else:
            self._settle()
            self._text(f":{text}")

    def _text(self, text: str) -> None:
        lead, self._lead = self._lead, ""
        if self._is_line_start and not LINE_PREFIX.fullmatch(lead + text):
            self._is_line_start = False
        self._put(lead + text)

    def _put(self, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        if not self._stack:
            self._out.append(text)
            self._held = 0
            return
        self._stack[-1].parts.append(text)
        self._held += len(text)
        if self._held > LONGEST_HELD:
            self._flush()

    def _flush(self) -> None:
        """Write everything that is pending as text."""
        if self._definition is not None:
            self._end_definition()
            self._is_skipping = False
        if self._target is not None:
            target, self._target = self._target, None
            self._settle()
            self._text(f"({target.raw}")
        self._settle()
        frames, self._stack = self._stack, []
        for frame in frames:
            before = frame.before.write() if frame.before else ""
            self._put(f"{before}{frame.lead}{frame.opener}{frame.text}")


def _read_numbers(text: str) -> list[int] | None:
    """Read a citation as `1` or `1, 2`; None: the text is none."""
    found = _NUMBERS.fullmatch(text)
    return [int(number) for number in re.split(r"[,;]", found[1])] if found else None
