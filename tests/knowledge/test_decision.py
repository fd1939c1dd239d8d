"""What is done with a question: answers, two topics, follow-ups, suggestions and small talk."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from hlas.agent.knowledge import Finding, compose
from hlas.knowledge.entries import Entry
from hlas.knowledge.language import Language, detect
from hlas.knowledge.ranking import Decision, Match, SmallTalk, confidence
from hlas.knowledge.ranking.confidence import Thresholds
from hlas.knowledge.ranking.decision import decide, is_follow_up, split_parts
from hlas.knowledge.ranking.index import Index
from hlas.knowledge.ranking.small_talk import LONGEST_CHARACTERS, find_small_talk

ENTRIES = {
    "hours": Entry("Kdy máte otevřeno?", "Ve všední dny od 9 do 17 hodin.", ("otevírací doba",)),
    "price": Entry("Kolik stojí doprava?", "Do Prahy 99 Kč, jinam 129 Kč.", ("poštovné",)),
    "return": Entry(
        "Jak vrátím zboží?", "Do 30 dnů nám ho pošlete zpět.", ("vrácení", "reklamace")
    ),
    "parking": Entry("Where can I park?", "The car park is behind the house.", ("car",), "en"),
}


def make_search(entries: dict[str, Entry] = ENTRIES) -> Callable[[str], Awaitable[list[Match]]]:
    index = Index()
    for entry_id, entry in entries.items():
        index.put(entry_id, entry)

    async def search(text: str) -> list[Match]:
        return index.search(text, detect(text) or "cs")

    return search


async def decide_about(text: str, previous: str | None = None) -> Decision:
    return await decide(make_search(), text, detect(text) or "cs", previous)


def list_ids(matches: tuple[Match, ...]) -> list[str]:
    return [match.entry_id for match in matches]


async def test_sure() -> None:
    """An entry's question is answered; a word of it that says little is not enough."""
    decision = await decide_about("kolik stoji doprava")
    assert (list_ids(decision.matches), decision.suggestions) == (["price"], ())
    assert decision.confidence == 1.0
    decision = await decide_about("Kolik stojí roční předplatné časopisu?")
    assert decision.matches == ()


async def test_suggestions() -> None:
    """What may have been meant is offered, at most three, best first; the rest is not."""
    many = {str(number): Entry(f"Jak funguje doprava {number}?", "Takto.") for number in range(9)}
    decision = await decide(make_search(many), "doprava do zahraničí balíkem a letadlem", "cs")
    confidences = [match.confidence for match in decision.suggestions]
    assert (decision.matches, len(decision.suggestions)) == ((), 3)
    assert confidences == sorted(confidences, reverse=True)
    assert await decide_about("quantum chromodynamics lecture") == Decision()


async def test_two_topics() -> None:
    """A question about two things is answered with both entries."""
    decision = await decide_about("Kdy máte otevřeno a kolik stojí doprava?")
    assert set(list_ids(decision.matches)) == {"hours", "price"}
    # One topic in two sentences has one answer.
    decision = await decide_about("Kolik stojí doprava? Tedy kolik stojí poštovné?")
    assert list_ids(decision.matches) == ["price"]


async def test_follow_up() -> None:
    """A question that needs the one before it is understood with it, and its topic is named."""
    alone = await decide_about("a jak rychle?")
    assert (alone.matches, alone.is_follow_up) == ((), False)
    decision = await decide_about("a jak rychle?", "Kolik stojí doprava?")
    assert decision.is_follow_up
    assert list_ids(decision.matches or decision.suggestions)[0] == "price"
    thresholds = replace(confidence.load().thresholds, follow_up=0.5)
    sent = await decide(make_search(), "a jak rychle?", "cs", "Kolik stojí doprava?", thresholds)
    said = compose([Finding("", sent)], "cs")
    assert (said.text or "").startswith("K dotazu „Kolik stojí doprava?“:")
    # A short question is one of its own if it refers to nothing.
    decision = await decide_about("poštovné?", "Kdy máte otevřeno?")
    assert (list_ids(decision.matches), decision.is_follow_up) == (["price"], False)
    # Small talk is nothing to go on from.
    decision = await decide_about("a jak rychle?", "Dobrý den")
    assert not decision.is_follow_up
    # A question of its own has nothing to do with the one before it.
    decision = await decide_about("Kdy máte otevřeno?", "Kolik stojí doprava?")
    assert (list_ids(decision.matches), decision.is_follow_up) == (["hours"], False)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("and on Saturday?", "en", True),
        ("what about children over ten in a group", "en", True),
        ("how much is it for two large suitcases", "en", True),
        ("price?", "en", True),
        ("A co když přijedu pozdě večer vlakem?", "cs", True),
        ("jak dlouho to trvá s montáží nábytku", "cs", True),
        ("how large are double rooms", "en", False),
        ("Kolik stojí doprava nábytku?", "cs", False),
    ],
)
def test_is_follow_up(text: str, language: Language, *, expected: bool) -> None:
    """It begins with "and", has a pronoun, or at most one word with a meaning."""
    assert is_follow_up(text, language) is expected


def test_parts() -> None:
    """Sentences and what "and" joins; parts without a meaning are none."""
    assert split_parts("Kde jste a kdy máte otevřeno?", "cs") == ["kdy máte otevřeno"]
    assert split_parts("Cheap rooms and late breakfast, please.", "en") == [
        "Cheap rooms",
        "late breakfast",
    ]


async def test_many_parts_are_not_searched() -> None:
    """A question costs at most four searches, however many parts it has."""
    asked: list[str] = []
    search = make_search()

    async def count(text: str) -> list[Match]:
        asked.append(text)
        return await search(text)

    await decide(
        count, "doprava, zboží, auto, vrácení, poštovné? " * 20, "cs", "Kdy máte otevřeno?"
    )
    assert len(asked) <= 2
    asked.clear()
    await decide(count, "doprava zdarma a vrácení zboží", "cs", "Kdy máte otevřeno?")
    assert len(asked) <= 4


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Dobrý den!", "greeting"),
        ("ahooooj :)", "greeting"),
        ("Good evening everyone", "greeting"),
        ("Mockrát děkuji za pomoc", "thanks"),
        ("thx, that helped!", "thanks"),
        ("Díky, na shledanou", "goodbye"),
        ("ok bye", "goodbye"),
        ("ok", "assent"),
        ("👍", "assent"),
        ("Aha, rozumím.", "assent"),
        ("Jste robot, nebo člověk?", "robot"),
        ("am I really talking to a machine", "robot"),
        ("How are you today?", "mood"),
        ("Jak se máte?", "mood"),
        ("Hi, can you help me please?", "help"),
        ("Dobrý den, chtěla bych se na něco zeptat", "help"),
        ("Dobrý den, kolik stojí doprava?", None),
        ("thanks, and where can I park?", None),
        ("Can you help me with my invoice?", None),
        ("ok " * LONGEST_CHARACTERS, None),
        ("", None),
        ("?!", None),
    ],
)
def test_small_talk(text: str, kind: SmallTalk | None) -> None:
    """A message of nothing but small talk is recognised; a question beside it wins."""
    assert find_small_talk(text) == kind


async def test_small_talk_is_met() -> None:
    """Small talk is not a question, unless an entry asks just that."""
    assert await decide_about("Dobrý den") == Decision(small_talk="greeting")
    entries = ENTRIES | {"robot": Entry("Jste robot?", "Ano, jmenuji se Karel.")}
    decision = await decide(make_search(entries), "jste robot", "cs")
    assert (decision.small_talk, list_ids(decision.matches)) == (None, ["robot"])


async def test_thresholds() -> None:
    """From the thresholds on an entry is sent or offered, below them it is not."""
    match = Match("1", "What?", "That.", 0.5)

    async def search(_: str) -> list[Match]:
        return [match]

    async def try_thresholds(sure: float, offered: float) -> Decision:
        return await decide(search, "price list", "en", None, Thresholds(sure, 1.0, 1.0, offered))

    assert await try_thresholds(0.5, 0.1) == Decision((match,), confidence=0.5)
    assert await try_thresholds(0.51, 0.5) == Decision((), (match,), confidence=0.5)
    assert await try_thresholds(0.51, 0.51) == Decision(confidence=0.5)
    thresholds = confidence.load().thresholds
    assert 0 < thresholds.offered < thresholds.sure < 1
