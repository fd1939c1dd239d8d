"""Notices a tenant's secret in an answer before it is shown."""

import base64
import re
import unicodedata
from functools import lru_cache

# So many of the secret's letters and digits in a row trip it; fewer may be equal by chance.
WINDOW = 8
# From so many in a row on they are held back: of what trips, a visitor sees at most one fewer.
HELD = 4

# Cyrillic letters that look like Latin ones.
_LOOKALIKES = str.maketrans("авсԁеіѕорхукмтн", "abcdeisopxykmth")
_SKIPPED = re.compile(r"[\W_]+")


class CanaryTripped(Exception):
    """The model tried to reveal the secret of its prompt."""


class Canary:
    """Reads a text character by character, but for all that is neither letter nor digit."""

    def __init__(self, secret: str) -> None:
        self._held, self._window = _list_parts(secret)
        self._shortest = min((len(part) for part in self._held), default=0)
        self._longest = min((len(part) for part in self._window), default=0)
        self._recent = ""
        self.is_near = False

    def read(self, character: str) -> None:
        """Set `is_near` while the secret may be under way; raise CanaryTripped when it is there."""
        if not character.isalnum():
            return
        for plain in character.lower() if character.isascii() else fold(character):
            self._recent = (self._recent + plain)[-WINDOW:]
            self.is_near = self._recent[-self._shortest :] in self._held
            if self.is_near and self._recent[-self._longest :] in self._window:
                raise CanaryTripped

    def is_clear(self, letters: str) -> bool:
        """Whether no part of the secret ends within folded text that comes next."""
        length = self._shortest
        text = self._recent[1 - length :] + letters
        parts = (text[start : start + length] for start in range(len(text) - length + 1))
        return not self.is_near and self._held.isdisjoint(parts)

    def skip(self, letters: str) -> None:
        """Read folded text that is clear."""
        self._recent = (self._recent + letters)[-WINDOW:]


def fold(text: str) -> str:
    """Reduce a text to letters and digits without case, accents, width or look-alikes."""
    plain = unicodedata.normalize("NFKD", text).casefold().translate(_LOOKALIKES)
    return _SKIPPED.sub("", "".join(c for c in plain if not unicodedata.combining(c)))


@lru_cache(maxsize=256)
def _list_parts(secret: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the parts of the secret, and of its encodings, that are held and that trip."""
    plain = fold(secret)
    spellings = [plain, plain[::-1]]
    for text in {secret, secret.lower(), secret.upper(), plain} if plain else ():
        data = text.encode()
        spellings.append(data.hex())
        # Base64 depends on where in a group of three bytes the secret begins.
        spellings += [
            fold(base64.b64encode(bytes(skipped) + data).decode()[2 * skipped : -4])
            for skipped in range(3)
        ]
    window = min(WINDOW, len(plain))
    held = min(HELD, window)
    return _cut(spellings, held), _cut(spellings, window)


def _cut(spellings: list[str], length: int) -> frozenset[str]:
    return frozenset(
        text[start : start + length]
        for text in spellings
        for start in range(len(text) - length + 1)
        if length
    )
