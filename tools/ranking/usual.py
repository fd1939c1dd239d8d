"""Which terms are usual in questions and answers at large, so that they say little."""

from collections import Counter
from collections.abc import Sequence

from tools.ranking.data import Organisation

from hlas.knowledge.ranking.terms import MOST_HEAD_WORDS, find_language, place_terms, read_words

LEAST_SHARE = 0.008


def count_usual(organisations: Sequence[Organisation]) -> dict[str, float]:
    """The share of entries and questions that contain a term."""
    counts = Counter[str]()
    total = 0
    for one in organisations:
        for entry in one.entries.values():
            counts.update(place_terms(entry, find_language(entry)).keys())
            total += 1
        for case in one.cases:
            words = read_words(case.text, case.language, MOST_HEAD_WORDS)
            counts.update({term for meant in words for term in meant.terms})
            total += 1
    return {
        term: round(count / total, 4)
        for term, count in sorted(counts.items())
        if count / total >= LEAST_SHARE
    }
