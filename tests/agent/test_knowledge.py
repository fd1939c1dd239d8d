"""What the knowledge agent makes of a decision: answers, topics, excerpts, suggestions, manners."""

from typing import get_args

import pytest

from hlas.agent import Answer, Source, phrases
from hlas.agent.excerpts import LONGEST, excerpt, split_sentences
from hlas.agent.knowledge import Finding, compose, is_pleasantry
from hlas.knowledge.language import LANGUAGES
from hlas.knowledge.ranking import Decision, Match, SmallTalk

HOURS = Match("1", "When are you open?", "From 9 to 17.", 0.9)
PRICE = Match("2", "What does *delivery* cost?", "99 crowns.", 0.8)
PAGE = Match(
    "3",
    "Returns",
    "We are a family firm. Goods can be returned within 30 days. Write to Dr. Novak on the 14. "
    "floor. The postage is yours.\nNobody reads this line.",
    0.7,
    "passage",
    "https://shop.example/returns",
)


def answer(*decisions: Decision, text: str = "") -> Answer:
    return compose([Finding(text, decision) for decision in decisions], "en")


def test_sure() -> None:
    """One entry is sent word for word; several stand under their questions, each once."""
    assert answer(Decision((HOURS,), confidence=0.9)) == Answer(
        "From 9 to 17.", "knowledge", 0.9, entries=("1",)
    )
    both = "**When are you open?**\n\nFrom 9 to 17.\n\n**What does delivery cost?**\n\n99 crowns."
    two_topics = answer(Decision((HOURS, PRICE)))
    assert (two_topics.text, two_topics.entries) == (both, ("1", "2"))
    # The same in several messages, one of which is small talk.
    messages = (Decision((HOURS,)), Decision(small_talk="thanks"), Decision((PRICE, HOURS)))
    assert answer(*messages).text == both


def test_follow_up() -> None:
    """A question that was understood through another one is answered with its topic."""
    said = compose([Finding("", Decision((HOURS,), is_follow_up=True))], "cs")
    assert said.text == "K dotazu „When are you open?“:\n\nFrom 9 to 17."


def test_suggestions() -> None:
    """What may have been meant is offered in the words of the entries; nothing: no text."""
    offered = answer(Decision(suggestions=(HOURS, PRICE), confidence=0.3), Decision())
    assert (offered.text, offered.source) == (phrases.SUGGESTIONS["en"], "fallback")
    assert offered.suggestions == ("When are you open?", "What does *delivery* cost?")
    assert (offered.entries, offered.confidence) == (("1", "2"), 0.3)
    assert answer(Decision(confidence=0.1)) == Answer(None, "fallback", 0.1)
    # A sure answer to one of two messages has none.
    assert answer(Decision((HOURS,)), Decision(suggestions=(PRICE,))).suggestions == ()
    finding = Finding("", Decision((HOURS,), (PRICE,)), (HOURS, PRICE, PAGE))
    assert [finding.find_use(one) for one in finding.matches] == ["sure", "offered", "not sent"]


def test_small_talk() -> None:
    """Every kind has its sentence in every language; a question beside it comes first."""
    for kind in get_args(SmallTalk):
        for language in LANGUAGES:
            said = compose([Finding("", Decision(small_talk=kind))], language)
            assert (said.text, said.source) == (phrases.SMALL_TALK[kind][language], "smalltalk")
    hello = Decision(small_talk="greeting")
    assert answer(hello, Decision()).source == "fallback"
    assert is_pleasantry([Finding("", hello)])
    assert not is_pleasantry([Finding("", hello), Finding("", Decision())])
    # A model may have asked for it.
    assert not is_pleasantry([Finding("", Decision(small_talk="assent"))])


def test_excerpt() -> None:
    """A passage is answered with the sentences that fit, and its source."""
    said = answer(Decision((PAGE,)), text="Can I return something after 30 days?")
    assert said.text == (
        "Goods can be returned within 30 days. Write to Dr. Novak on the 14. floor. The postage "
        "is yours. Nobody reads this line. [1]"
    )
    assert said.sources == (Source(1, "Returns", "https://shop.example/returns"),)


@pytest.mark.parametrize("text", ["x" * 2000, "A word. " * 500, "a b c " * 300, "\n" * 9, ""])
def test_long_excerpts(text: str) -> None:
    """An excerpt is bounded, whatever the text; a sentence that is too long is cut after a word."""
    found = excerpt(text, "a word of the question")
    assert len(found) <= LONGEST + 2
    assert bool(found) == bool(text.strip())


def test_sentences() -> None:
    """Numbers and abbreviations do not end a sentence; lines do."""
    assert split_sentences('Je to č. 5. Otevřeno od 8. hodiny, např. Po. "Ano?" Ne!\n- bod') == [
        "Je to č. 5.",
        "Otevřeno od 8. hodiny, např. Po.",
        '"Ano?" Ne!',
        "- bod",
    ]
