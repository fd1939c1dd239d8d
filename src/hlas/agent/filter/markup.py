"""Drops from an answer characters that hide something, and HTML tags."""

import re
import unicodedata
from html.entities import html5

from hlas.agent.filter.links import LONGEST_HELD

# Text that needs no change: printable ASCII except &, accented letters, dashes, quotation marks.
_PLAIN = re.compile(r"[\n\t !-%'-~\u00a0-\u00ac\u00ae-\u024f\u2010-\u2027\u2030-\u205e]*")
_ENTITY = re.compile(r"&(?:#[0-9]{0,8}|#[xX][0-9a-fA-F]{0,8}|[a-zA-Z][a-zA-Z0-9]{0,31})?")
# Letters and marks that nobody sees.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"

_AUTOLINK = re.compile(r"[a-z][a-z0-9+.-]{1,31}:\S*|[^\s@/]+@[^\s/]+", re.IGNORECASE)


class Characters:
    """Drops characters that hide or control, and decodes entities as a browser does."""

    def __init__(self) -> None:
        self._entity = ""
        self._last = ""

    def feed(self, piece: str) -> str:
        if not self._entity and _PLAIN.fullmatch(piece):
            self._last = piece[-1:] or self._last
            return piece
        out: list[str] = []
        for character in piece:
            self._take(character, out)
        return "".join(out)

    def finish(self) -> str:
        entity, self._entity = self._entity, ""
        return entity

    def _take(self, character: str, out: list[str]) -> None:
        if self._entity and character == ";":
            decoded = _decode(self._entity)
            if decoded is not None:
                self._entity = ""
                # Decoded text may be the beginning of another entity.
                for inner in decoded:
                    self._take(inner, out)
                return
        # A dropped character within an entity does not end it, as the output is without it.
        character = self._keep(character)
        if not character:
            return
        if self._entity:
            if _ENTITY.fullmatch(self._entity + character):
                self._entity += character
                return
            out.append(self._entity)
            self._entity = ""
        if character == "&":
            self._entity = "&"
        else:
            out.append(character)

    def _keep(self, character: str) -> str:
        kept = character if character.isalnum() and character.isascii() else self._filter(character)
        self._last = kept or self._last
        return kept

    def _filter(self, character: str) -> str:
        category = unicodedata.category(character)
        if category in {"Zl", "Zp"}:
            return "\n"
        is_emoji = unicodedata.category(self._last or " ") in {"So", "Sk"}
        if character == _JOINER:
            return character if is_emoji or self._last == _EMOJI_STYLE else ""
        if "\ufe00" <= character <= _EMOJI_STYLE or "\U000e0100" <= character <= "\U000e01ef":
            is_styled = character == _EMOJI_STYLE and (is_emoji or self._last in "0123456789#*‼⁉")
            return character if is_styled else ""
        is_dropped = category in {"Cc", "Cf", "Cs"} and character not in "\n\t"
        return (
            ""
            if is_dropped or character in _INVISIBLE or _is_noncharacter(character)
            else character
        )


class Tags:
    """Drops HTML tags; their inner text stays."""

    def __init__(self) -> None:
        self._tag = ""

    def feed(self, text: str) -> str:
        if not self._tag and "<" not in text:
            return text
        out: list[str] = []
        for character in text:
            self._take(character, out)
        return "".join(out)

    def finish(self) -> str:
        tag, self._tag = self._tag, ""
        return _open_up(tag)

    def _take(self, character: str, out: list[str]) -> None:
        if not self._tag:
            if character == "<":
                self._tag = character
            else:
                out.append(character)
        elif character == ">" and len(self._tag) > 1:
            inner, self._tag = self._tag[1:], ""
            if _AUTOLINK.fullmatch(inner):
                out.append(inner)
        elif len(self._tag) == 1 and not (character.isalpha() or character in "/!?<"):
            out.append(self._tag + character)
            self._tag = ""
        elif character in "<\n" or len(self._tag) > LONGEST_HELD:
            out.append(_open_up(self._tag))
            self._tag = "<" if character == "<" else ""
            if not self._tag:
                out.append(character)
        else:
            self._tag += character


def _decode(entity: str) -> str | None:
    if entity[1:2] != "#":
        return html5.get(f"{entity[1:]};")
    try:
        code = int(entity[3:], 16) if entity[2:3] in {"x", "X"} else int(entity[2:])
        return chr(code)
    except (ValueError, OverflowError):
        return None


def _is_noncharacter(character: str) -> bool:
    return "\ufdd0" <= character <= "\ufdef" or ord(character) & 0xFFFE == 0xFFFE


def _open_up(tag: str) -> str:
    """Write an unfinished tag as text: after a space, `<` begins no tag."""
    return f"< {tag[1:]}" if len(tag) > 1 else tag
