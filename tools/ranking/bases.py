"""Knowledge bases of several sizes: the organisation's own entries, alone and among others."""

import random
from collections.abc import Iterator

import numpy as np
from tools.ranking.data import Organisation
from tools.ranking.vectors import Meanings, Vectors

from hlas.knowledge.entries import Entry
from hlas.knowledge.language import Language
from hlas.knowledge.ranking import lexicon
from hlas.knowledge.ranking.confidence import Fitted
from hlas.knowledge.ranking.index import Index

FOLDER = lexicon.__file__.rpartition("/")[0]
# Entries that say nearly the same would answer the question as well as the expected one.
MOST_LIKENESS = 0.72
TEMPLATES: dict[Language, tuple[tuple[str, str], ...]] = {
    "cs": (
        ("Nabízíte {}?", "Ano, {} zajistíme po domluvě. Napište nám nebo se zastavte na přepážce."),
        ("Kolik stojí {}?", "Cena za {} je v ceníku na webu. Platí se předem i na místě."),
        ("Jak je to u vás s tím, co je {}?", "Pravidla najdete v dokumentu {} v sekci Ke stažení."),
        ("Kde najdu {}?", "Podrobnosti o položce {} jsou v zákaznické sekci po přihlášení."),
        ("Kdo má na starosti {}?", "Vyřizuje to kolegyně v kanceláři 204, předmět zprávy: {}."),
    ),
    "en": (
        ("Do you offer {}?", "Yes, ask our staff about {} and we will arrange it for you."),
        ("How much does {} cost?", "The price of {} is in the price list on our website."),
        (
            "What are the rules for {}?",
            "The rules for {} are in the document that you can download.",
        ),
        ("Where do I find {}?", "Everything about {} is in your account after you sign in."),
        (
            "Who is responsible for {}?",
            "Write to office 204 with {} in the subject of the message.",
        ),
    ),
}


def make_strangers(count: int) -> list[Entry]:
    """Entries about all that is in the word lists, in both languages."""
    random_ = random.Random(7)  # the same entries in every run
    found = []
    for language, file in (("cs", "czech.tsv"), ("en", "english.tsv")):
        with open(f"{FOLDER}/{file}", encoding="utf-8") as lines:  # noqa: PTH123
            heads = [line.partition("\t")[0].split(", ")[0] for line in lines]
        templates = TEMPLATES["cs" if language == "cs" else "en"]
        for head in heads:
            question, answer = random_.choice(templates)
            found.append(Entry(question.format(head), answer.format(head)))
    random_.shuffle(found)
    return found[:count]


class Base:
    """The entries of an organisation, alone or among strangers."""

    def __init__(
        self, fitted: Fitted, vectors: Vectors, entries: dict[str, Entry], own: frozenset[str]
    ) -> None:
        self.index = Index(fitted)
        for entry_id, entry in entries.items():
            self.index.put(entry_id, entry)
        self.meanings = Meanings(vectors, entries)
        self.own = own


def choose_strangers(
    own: dict[str, Entry], strangers: dict[str, Entry], vectors: Vectors
) -> dict[str, Entry]:
    """Those that no entry of the organisation resembles."""
    mine = np.stack([vectors.embed_entry(entry)[0] for entry in own.values()])
    return {
        entry_id: entry
        for entry_id, entry in strangers.items()
        if float((mine @ vectors.embed_entry(entry)[0]).max()) < MOST_LIKENESS
    }


def make_bases(
    organisation: Organisation,
    others: list[Organisation],
    strangers: list[Entry],
    vectors: Vectors,
    fitted: Fitted,
) -> Iterator[tuple[str, Base]]:
    """Its own entries, and thousands of entries with them among them."""
    own = organisation.entries
    names = frozenset(own)
    yield "own", Base(fitted, vectors, own, names)
    strange = {
        f"{other.name} {entry_id}": entry
        for other in others
        for entry_id, entry in other.entries.items()
    }
    strange |= {f"stranger {number}": entry for number, entry in enumerate(strangers)}
    chosen = choose_strangers(own, strange, vectors)
    yield "thousands", Base(fitted, vectors, own | chosen, names)
