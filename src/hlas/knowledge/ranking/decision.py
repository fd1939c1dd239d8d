"""What to do with a question, given the entries that match it."""

import re
from collections.abc import Awaitable, Callable, Sequence

from hlas.knowledge.language import Language
from hlas.knowledge.ranking import EXACT, Decision, Match, confidence
from hlas.knowledge.ranking.confidence import Thresholds
from hlas.knowledge.ranking.small_talk import find_small_talk
from hlas.knowledge.ranking.words import split_words

SUGGESTIONS = 3
# A question with exactly so many parts may have two topics.
PARTS = 2

Search = Callable[[str], Awaitable[list[Match]]]

_GAP = re.compile(r"[?!.;,\n]+|\s(?:a|i|and|plus|also|taky|take|také|zároveň)\s", re.IGNORECASE)
_BEGINNING = re.compile(
    r"(?:a|and|what about|how about|co|what if|but|ale|ani|or|nebo|i|so|also|then)\b"
)
_PRONOUNS = frozenset(
    """
    it its that this those these they them there one ones he him she her then
    to ten ta ty toho tomu tom tim te tech tem tu ho mu ji je jej jim jich nej nem nim ni
    tam tohle tenhle tahle takovy takova takove takovou onen ona oni on stejne
    """.split()  # noqa: SIM905  # a paragraph of words reads better than a page of quotes
)


async def decide(
    search: Search,
    text: str,
    language: Language,
    previous: str | None = None,
    thresholds: Thresholds | None = None,
) -> Decision:
    """Answer it, offer what may have been meant, or neither."""
    thresholds = thresholds or confidence.load().thresholds
    small_talk = find_small_talk(text)
    matches = await search(text)
    if small_talk and not (matches and matches[0].confidence >= EXACT):
        return Decision(small_talk=small_talk)
    best = _best(matches)
    if best < EXACT and len(parts := split_parts(text, language)) == PARTS:
        found = [await search(part) for part in parts]
        both = _find_topics(found, matches, thresholds.topic)
        if both:
            return Decision(both, confidence=min(one.confidence for one in both))
    goes_on = previous and not find_small_talk(previous)
    is_whole = best >= EXACT or not (goes_on and is_ellipsis(text, language))
    if best >= thresholds.sure and is_whole:
        return Decision(tuple(matches[:1]), confidence=best)
    if goes_on and is_follow_up(text, language):
        return await _follow_up(search, f"{previous} {text}", matches, thresholds)
    return Decision((), _offer(matches, thresholds), confidence=best)


def _best(matches: Sequence[Match]) -> float:
    return matches[0].confidence if matches else 0.0


def _offer(matches: Sequence[Match], thresholds: Thresholds) -> tuple[Match, ...]:
    return tuple(one for one in matches if one.confidence >= thresholds.offered)[:SUGGESTIONS]


async def _follow_up(
    search: Search, text: str, alone: Sequence[Match], thresholds: Thresholds
) -> Decision:
    """The question is understood through the one before it."""
    matches = await search(text)
    best = _best(matches)
    if best >= thresholds.follow_up:
        return Decision(tuple(matches[:1]), confidence=best, is_follow_up=True)
    known = {one.entry_id for one in matches}
    others = [one for one in alone if one.entry_id not in known]
    both = sorted([*matches, *others], key=lambda one: -one.confidence)
    return Decision((), _offer(both, thresholds), is_follow_up=True, confidence=best)


def is_follow_up(text: str, language: Language) -> bool:
    """Whether a question looks as if it continued another one."""
    return _refers(text, language) or _is_short(text, language)


def is_ellipsis(text: str, language: Language) -> bool:
    """Whether it can hardly be understood without that: "and how much is it?"."""
    return _refers(text, language) and _is_short(text, language)


def _refers(text: str, language: Language) -> bool:
    words = [word.folded for word in split_words(text, language, 60)]
    return any(word in _PRONOUNS for word in words) or bool(_BEGINNING.match(" ".join(words)))


def _is_short(text: str, language: Language) -> bool:
    """At most one word has a meaning."""
    return sum(not word.is_stop for word in split_words(text, language, 60)) <= 1


def split_parts(text: str, language: Language) -> list[str]:
    """The parts of a question that may have topics of their own."""
    parts = [part.strip() for part in _GAP.split(text)]
    return [
        part for part in parts if any(not word.is_stop for word in split_words(part, language, 60))
    ]


def _find_topics(
    found: Sequence[Sequence[Match]], whole: Sequence[Match], least: float
) -> tuple[Match, ...]:
    """The best entry of each part, if each is sure enough and likely for the whole, too."""
    best = [matches[0] for matches in found if matches and matches[0].confidence >= least]
    likely = {one.entry_id for one in whole[:SUGGESTIONS]}
    both = {one.entry_id: one for one in best if one.entry_id in likely}
    return tuple(both.values()) if len(both) == PARTS else ()
