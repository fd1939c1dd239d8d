"""Fits the weights: what ranks entries, and how sure the best of them is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlas.knowledge.ranking import confidence
from hlas.knowledge.ranking.confidence import Evidence, Model, QuestionFeatures

RANKING_PENALTY = 2.0
CONFIDENCE_PENALTY = 1.0
# The best entries of a question are examples for the confidence.
EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """A question with what speaks for each candidate, and which of them answer it."""

    evidence: Sequence[Evidence]
    is_right: Sequence[bool]
    question: QuestionFeatures
    is_semantic: bool
    weight: float = 1.0


def fit(samples: Sequence[Sample]) -> Model:
    ranking = fit_ranking(samples)
    return Model(ranking.tolist(), fit_confidence(samples, ranking).tolist())


def fit_ranking(samples: Sequence[Sample]) -> np.ndarray:
    """The right entry first: the softmax over the candidates of a question, by gradient descent."""
    lists = []
    for sample in samples:
        if any(sample.is_right):
            rows = [
                confidence.list_ranking_features(one, is_semantic=sample.is_semantic)
                for one in sample.evidence
            ]
            lists.append((np.array(rows), np.array(sample.is_right), sample.weight))
    weights = np.zeros(lists[0][0].shape[1])
    for _ in range(60):
        gradient = RANKING_PENALTY * weights
        curvature = RANKING_PENALTY * np.eye(len(weights))
        for rows, right, weight in lists:
            share = _softmax(rows @ weights)
            wanted = np.where(right, share, 0.0)
            wanted /= max(wanted.sum(), 1e-12)
            gradient -= weight * (wanted - share) @ rows
            centred = rows - share @ rows
            curvature += weight * (centred * share[:, None]).T @ centred
        step = np.linalg.solve(curvature, gradient)
        weights = weights - 0.7 * step
        if np.abs(step).max() < 1e-5:
            break
    return weights


def _softmax(scores: np.ndarray) -> np.ndarray:
    grown = np.exp(scores - scores.max())
    return grown / grown.sum()


def fit_confidence(samples: Sequence[Sample], ranking: np.ndarray) -> np.ndarray:
    """Whether an entry is right: logistic regression, by Newton's method."""
    rows, labels, weights = [], [], []
    for sample in samples:
        for row, right in list_examples(sample, ranking)[:EXAMPLES]:
            rows.append(row)
            labels.append(float(right))
            weights.append(sample.weight)
    return fit_logistic(np.array(rows), np.array(labels), np.array(weights))


def list_examples(sample: Sample, ranking: np.ndarray) -> list[tuple[list[float], bool]]:
    """The candidates of a question, best first, as the confidence sees them."""
    scores = [
        confidence.multiply(
            ranking, confidence.list_ranking_features(one, is_semantic=sample.is_semantic)
        )
        for one in sample.evidence
    ]
    others = confidence.list_best_others(scores)
    found = [
        (
            score,
            confidence.list_confidence_features(
                score, other, evidence, sample.question, is_semantic=sample.is_semantic
            ),
            right,
        )
        for score, other, evidence, right in zip(
            scores, others, sample.evidence, sample.is_right, strict=True
        )
    ]
    return [(row, right) for _, row, right in sorted(found, key=lambda one: -one[0])]


def fit_logistic(rows: np.ndarray, labels: np.ndarray, sample_weights: np.ndarray) -> np.ndarray:
    weights = np.zeros(rows.shape[1])
    # The constant is free.
    penalty = CONFIDENCE_PENALTY * np.array([1e-6, *[1.0] * (len(weights) - 1)])
    for _ in range(60):
        likely = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        gradient = rows.T @ (sample_weights * (likely - labels)) + penalty * weights
        curvature = (rows * (sample_weights * likely * (1 - likely))[:, None]).T @ rows
        step = np.linalg.solve(curvature + np.diag(penalty), gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-6:
            break
    return weights
