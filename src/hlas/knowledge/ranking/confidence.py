"""How sure a match is: a logistic model over a few features, fitted by tools/ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log1p
from pathlib import Path

import orjson

# How many entries the shares in `usual` weigh against those of a tenant.
USUAL_ENTRIES = 40
UNUSUAL = 0.002
# The score of a missing second entry.
NOTHING = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for an entry. Shares are weighted by how rare the words are."""

    # Of the question's words: in the head as they are, in the head also by what they mean, and
    # in the head or the body.
    exact: float
    head: float
    whole: float
    # The share of the most similar head that the question covers.
    covered: float
    # Similarity of three-letter groups with that head.
    letters: float
    # The weight of the rarest missing word, as a share of the question.
    missing: float
    # Written in another language than the question.
    is_foreign: float
    # Likeness of meaning, if it is known.
    meaning: float


@dataclass(frozen=True, slots=True)
class QuestionFeatures:
    """What is known of a question before it is compared."""

    words: int
    is_czech: bool
    # The share of its words that no entry contains.
    unknown: float


@dataclass(frozen=True, slots=True)
class Model:
    ranking: Sequence[float]
    confidence: Sequence[float]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The least confidence for each use of an entry."""

    sure: float
    # For a follow-up, and for each of two topics.
    follow_up: float
    topic: float
    offered: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of the fit; see docs/adr/ADR-0015-ranking.md."""

    semantic: Model
    lexical: Model
    thresholds: Thresholds
    # Shares of entries and questions that contain a term.
    usual: Mapping[str, float]


def list_ranking_features(evidence: Evidence, *, is_semantic: bool) -> list[float]:
    """The features that order the entries for one question."""
    both = evidence.head * evidence.covered
    features = [
        evidence.exact,
        evidence.head,
        evidence.whole,
        evidence.covered,
        evidence.letters,
        both,
        evidence.is_foreign,
    ]
    if is_semantic:
        features.append(evidence.meaning)
    return features


def list_confidence_features(
    score: float,
    best_other: float,
    evidence: Evidence,
    question: QuestionFeatures,
    *,
    is_semantic: bool,
) -> list[float]:
    features = [
        1.0,
        score,
        max(-3.0, min(3.0, score - best_other)),
        evidence.whole,
        evidence.covered,
        evidence.letters,
        evidence.missing,
        evidence.is_foreign,
        question.unknown,
        log1p(question.words),
        float(question.is_czech),
    ]
    if is_semantic:
        features.append(evidence.meaning)
    return features


def multiply(weights: Sequence[float], features: Sequence[float]) -> float:
    return sum(weight * feature for weight, feature in zip(weights, features, strict=True))


def squash(logit: float) -> float:
    """The logistic function."""
    return 1 / (1 + exp(-max(-30.0, min(30.0, logit))))


@cache
def load() -> Fitted:
    path = Path(__file__).with_name("fitted.json")
    found = orjson.loads(path.read_bytes())
    return Fitted(
        Model(**found["semantic"]),
        Model(**found["lexical"]),
        Thresholds(**found["thresholds"]),
        found["usual"],
    )


def judge(
    model: Model, entries: Sequence[Evidence], question: QuestionFeatures, *, is_semantic: bool
) -> list[float]:
    """The probability that each of the entries answers the question."""
    scores = [
        multiply(model.ranking, list_ranking_features(one, is_semantic=is_semantic))
        for one in entries
    ]
    return [
        squash(
            multiply(
                model.confidence,
                list_confidence_features(
                    score, best_other, evidence, question, is_semantic=is_semantic
                ),
            )
        )
        for score, best_other, evidence in zip(
            scores, list_best_others(scores), entries, strict=True
        )
    ]


def list_best_others(scores: Sequence[float]) -> list[float]:
    first, second = [*sorted(scores, reverse=True), NOTHING, NOTHING][:2]
    return [second if score == first else first for score in scores]
