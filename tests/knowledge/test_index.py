"""The index of a tenant's knowledge: what it finds after any changes, and what it forgets."""

import random

import pytest

from hlas.demo import tenant as demo
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking import Match, comparison
from hlas.knowledge.ranking.index import MATCHES, Index
from hlas.knowledge.ranking.postings import Postings
from hlas.knowledge.ranking.typos import correct

TEXTS = ("kde najdu fakturu", "my wifi is slow", "stěhování smlouvy", "technican", "asdf")


def search_all(index: Index) -> list[list[Match]]:
    return [index.search(text, "cs") for text in TEXTS]


def test_changes_leave_no_trace() -> None:
    """After any changes the index finds what a new one with the same entries finds."""
    random_ = random.Random(3)
    entries = list(demo.read_entries())
    index = Index()
    current: dict[str, Entry] = {}
    for step in range(200):
        entry_id = str(random_.randrange(20))
        if random_.random() < 0.3:
            current.pop(entry_id, None)
            index.remove(entry_id)
        elif step % 50 == 49:
            current = dict(list(current.items())[::2])
            index.keep(current.keys())
        else:
            current.pop(entry_id, None)
            current[entry_id] = random_.choice(entries)
            index.put(entry_id, current[entry_id])
    fresh = Index()
    for entry_id, entry in current.items():
        fresh.put(entry_id, entry)
    assert search_all(index) == search_all(fresh)
    assert (len(index), index.characters) == (len(fresh), fresh.characters)
    index.keep(())
    assert (len(index), index.characters) == (0, 0)
    assert [*index._postings] == []
    assert (index._forms, index._heads) == ({}, {})


def test_own_question_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is found by its question or wording, however many entries share all its words, also
    where they are too many to be read.
    """
    index = Index()
    monkeypatch.setattr(comparison, "MOST_POSTINGS", 400)
    for number in range(300):
        index.put(str(number), Entry("Kolik stojí doprava?" + " " * number, f"{number} Kč"))
    index.put("wanted", Entry("Cena", "99 Kč", wordings=("Kolik stojí ta doprava?",)))
    found = index.search("kolik stoji TA doprava", "cs")
    assert (found[0].entry_id, found[0].confidence) == ("wanted", 1.0)
    assert len(found) <= MATCHES


def test_meaning_finds_other_words() -> None:
    """An entry that is near in meaning is found without a common word; unknown ids are ignored."""
    index = Index()
    index.put("dog", Entry("Can I bring my dog?", "Yes."))
    index.put("pool", Entry("Is there a pool?", "No."))
    text = "Our fourlegged companion comes along"
    assert index.search(text, "en") == []
    found = index.search(text, "en", {"dog": 0.6, "gone": 0.9, "pool": 0.1})
    assert [match.entry_id for match in found] == ["dog", "pool"]
    assert found[0].confidence > found[1].confidence


def test_postings() -> None:
    """A term has the entries that contain it, and the place in each."""
    postings = Postings()
    postings.add(1, {"one": 0, "both": 5})
    postings.add(7, {"both": 2})
    assert [postings.find("both", number) for number in (1, 6, 7, 8)] == [5, None, 2, None]
    postings.remove(1, ["one", "both"])
    assert (postings.count("one"), postings.count("both"), [*postings]) == (0, 1, ["both"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("faktrua", "faktura"),
        ("fatura", "faktura"),
        ("faktuura", "faktura"),
        ("faktira", "faktura"),
        ("faktura", None),
        ("vzp", None),
        ("x" * 1000, None),
        ("<fatura>", None),
    ],
)
def test_correct(typed: str, meant: str | None) -> None:
    """One change away from a known word; what is known, short or no word stays as it is."""
    assert correct(typed, {"faktura"} - {typed}) == meant
