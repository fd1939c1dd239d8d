"""Recognises small talk: messages of which every word belongs to it."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from hlas.knowledge.language import fold
from hlas.knowledge.ranking import SmallTalk

LONGEST_CHARACTERS = 200
LONGEST_PHRASE = 7
# Words that may surround a phrase.
FILLER = "filler"
# Words that are ignored, also within phrases.
DROPPED = "dropped"
# Stands for any word of a phrase.
ANY = "*"
# If a message has several kinds, the first of these is answered.
ORDER: tuple[SmallTalk, ...] = (
    "robot", "help", "mood", "goodbye", "thanks", "greeting", "assent",
)  # fmt: skip

_APOSTROPHE = re.compile(r"['\u2019`\u00b4]")
_WORD = re.compile(r"[^\W_]+")
# Ahoooj, heyyy.
_LONG = re.compile(r"(.)\1\1+")


@dataclass(frozen=True, slots=True)
class Phrases:
    """What small talk consists of."""

    kinds: dict[tuple[str, ...], SmallTalk]
    fillers: frozenset[str]
    dropped: frozenset[str]


def find_small_talk(text: str) -> SmallTalk | None:
    """What kind of small talk a message is; None if it says anything else."""
    if len(text) > LONGEST_CHARACTERS:
        return None
    written = _WORD.findall(_LONG.sub(r"\1", _APOSTROPHE.sub("", fold(text))))
    words = [word for word in written if word not in load().dropped]
    if not written:
        return "assent" if any(unicodedata.category(one) == "So" for one in text) else None
    found = set[SmallTalk]()
    place = 0
    while place < len(words):
        length, kind = _match(words[place : place + LONGEST_PHRASE])
        if not length:
            return None
        if kind:
            found.add(kind)
        place += length
    return next((kind for kind in ORDER if kind in found), None)


def _match(words: list[str]) -> tuple[int, SmallTalk | None]:
    """The longest phrase with which the words begin: its length and its kind."""
    phrases = load()
    for length in range(len(words), 0, -1):
        some = tuple(words[:length])
        kind = phrases.kinds.get(some) or phrases.kinds.get((*some[:-1], ANY))
        if kind:
            return length, kind
    return (1, None) if words[0] in phrases.fillers else (0, None)


@cache
def load() -> Phrases:
    kinds: dict[tuple[str, ...], SmallTalk] = {}
    words: dict[str, frozenset[str]] = {}
    text = Path(__file__).with_name("small_talk.tsv").read_text("utf-8")
    for line in text.splitlines():
        name, _, phrases = line.partition("\t")
        if name in {FILLER, DROPPED}:
            words[name] = words.get(name, frozenset()).union(phrases.split(", "))
            continue
        (kind,) = (one for one in get_args(SmallTalk) if one == name)
        for phrase in phrases.split(", "):
            kinds.setdefault(tuple(phrase.split()), kind)
    return Phrases(kinds, words[FILLER], words[DROPPED])
