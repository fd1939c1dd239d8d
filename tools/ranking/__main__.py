"""Fit the weights of the ranking, check them on organisations left out, and write them."""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import orjson
from tools.ranking.bases import Base, make_bases, make_strangers
from tools.ranking.data import Organisation, read_all
from tools.ranking.fit import Sample, fit
from tools.ranking.measure import SMALL_TALK, UNCOVERED, Outcome, Searches, count_shares
from tools.ranking.usual import count_usual
from tools.ranking.vectors import Vectors

from hlas.knowledge.ranking import confidence
from hlas.knowledge.ranking.confidence import Fitted, Thresholds

WEIGHTS = Path(confidence.__file__).with_name("fitted.json")
STRANGERS = 4500
FOLDS = 6
# How much the questions of a base count in the fit.
SIZES = {"own": 1.0, "thousands": 0.4}
MODES = (True, False)
# What the thresholds have to keep in every mode, with room for organisations not seen. Among
# strangers some "wrong" answers are right: organisations have entries in common.
MOST_WRONG = {"own": 0.02, "thousands": 0.045}
MOST_UNCOVERED = 0.09

Bases = dict[str, dict[str, Base]]


@dataclass(frozen=True, slots=True)
class Key:
    organisation: str
    size: str
    is_semantic: bool


def make_samples(base: Base, organisation: Organisation, key: Key) -> list[Sample]:
    found = []
    for case in organisation.cases:
        if case.kind == SMALL_TALK:
            continue
        text = f"{case.previous} {case.text}" if case.previous else case.text
        meaning = base.meanings.compare(text) if key.is_semantic else None
        question, candidates = base.index.compare(text, case.language, meaning)
        if not case.is_covered:
            candidates = [one for one in candidates if one.entry_id in base.own]
        if candidates:
            found.append(
                Sample(
                    [one.evidence for one in candidates],
                    [one.entry_id in case.expected for one in candidates],
                    question.features,
                    key.is_semantic,
                    SIZES[key.size],
                )
            )
    return found


def train(organisations: Sequence[Organisation], bases: Bases, fitted: Fitted) -> Fitted:
    """Fit both models to some organisations."""
    fitted = replace(fitted, usual=count_usual(organisations))
    models = {}
    for is_semantic in MODES:
        samples: list[Sample] = []
        for one in organisations:
            for size, base in bases[one.name].items():
                base.index.fitted = fitted
                samples += make_samples(base, one, Key(one.name, size, is_semantic))
        models[is_semantic] = fit(samples)
    return replace(fitted, semantic=models[True], lexical=models[False])


def search_all(
    organisation: Organisation, bases: dict[str, Base], fitted: Fitted
) -> dict[Key, Searches]:
    found = {}
    for (size, base), is_semantic in product(bases.items(), MODES):
        base.index.fitted = fitted
        searches = Searches(base, is_semantic=is_semantic)
        for case in organisation.cases:
            # Whatever the thresholds are, nothing else is searched.
            for thresholds in (NEVER, ALWAYS):
                searches.judge(case, thresholds)
        found[Key(organisation.name, size, is_semantic)] = searches
    return found


NEVER = Thresholds(2.0, 2.0, 2.0, 0.0)
ALWAYS = Thresholds(0.0, 0.0, 0.0, 0.0)


def judge_all(
    organisations: Sequence[Organisation], searches: dict[Key, Searches], thresholds: Thresholds
) -> dict[tuple[str, bool], list[Outcome]]:
    cases = {one.name: one.cases for one in organisations}
    outcomes: dict[tuple[str, bool], list[Outcome]] = defaultdict(list)
    for key, found in searches.items():
        outcomes[key.size, key.is_semantic] += [
            found.judge(case, thresholds) for case in cases[key.organisation]
        ]
    return outcomes


def is_covered(outcome: Outcome) -> bool:
    return outcome.case.is_covered


def is_uncovered(outcome: Outcome) -> bool:
    return outcome.case.kind in UNCOVERED


def keeps_bounds(outcomes: dict[tuple[str, bool], list[Outcome]]) -> bool:
    return all(
        count_shares(list(filter(is_covered, some))).get("wrong", 0.0) <= MOST_WRONG[size]
        and count_shares(list(filter(is_uncovered, some))).get("answered", 0.0) <= MOST_UNCOVERED
        for (size, _), some in outcomes.items()
    )


def choose_thresholds(
    organisations: Sequence[Organisation], searches: dict[Key, Searches]
) -> Thresholds:
    """One after the other, the lowest that keep the bounds."""
    thresholds = NEVER
    for name in ("sure", "follow_up", "topic"):
        for value in np.arange(0.3, 1.0, 0.02):
            tried = replace(thresholds, **{name: round(float(value), 2)})
            if keeps_bounds(judge_all(organisations, searches, tried)):
                thresholds = tried
                break
    found = count_found(organisations, searches, thresholds)
    for value in OFFERED:
        tried = replace(thresholds, offered=value)
        now = count_found(organisations, searches, tried)
        if all(now[base] >= found[base] - MOST_LOST for base in found):
            thresholds = tried
    return thresholds


def count_found(
    organisations: Sequence[Organisation], searches: dict[Key, Searches], thresholds: Thresholds
) -> dict[tuple[str, bool], float]:
    """The shares of right or offered entries."""
    outcomes = judge_all(organisations, searches, thresholds)
    shares = {base: count_shares(list(filter(is_covered, some))) for base, some in outcomes.items()}
    return {base: one.get("right", 0.0) + one.get("offered", 0.0) for base, one in shares.items()}


# What is less likely is not offered; so few right entries are lost.
OFFERED = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1)
MOST_LOST = 0.01


def print_table(outcomes: dict[tuple[str, bool], list[Outcome]]) -> None:
    print(f"{'base':10} {'meaning':8} {'questions':24} {'n':>5} right offered wrong answered")
    for (size, is_semantic), found in sorted(
        outcomes.items(), key=lambda one: (not one[0][1], one[0][0])
    ):
        groups: dict[str, list[Outcome]] = {
            "covered": list(filter(is_covered, found)),
            "not covered": list(filter(is_uncovered, found)),
        }
        for one in found:
            groups.setdefault(f"{one.case.language} {one.case.kind}", []).append(one)
        for name, some in groups.items():
            shares = count_shares(some)
            figures = " ".join(
                f"{100 * shares.get(one, 0.0):7.1f}"
                for one in ("right", "offered", "wrong", "answered")
            )
            print(f"{size:10} {'yes' if is_semantic else 'no':8} {name:24} {len(some):5} {figures}")


def split_folds(organisations: Sequence[Organisation]) -> list[list[Organisation]]:
    ordered = sorted(organisations, key=lambda one: one.language)
    return [list(ordered[number::FOLDS]) for number in range(FOLDS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strangers", type=int, default=STRANGERS, help="entries to add")
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    options = parser.parse_args()
    vectors = Vectors()
    organisations = read_all()
    start = confidence.load()
    strangers = make_strangers(options.strangers)
    bases = {
        one.name: dict(
            make_bases(
                one,
                [other for other in organisations if other is not one],
                strangers,
                vectors,
                start,
            )
        )
        for one in organisations
    }
    vectors.save()
    searches: dict[Key, Searches] = {}
    for fold in split_folds(organisations):
        fitted = train([one for one in organisations if one not in fold], bases, start)
        for one in fold:
            searches |= search_all(one, bases[one.name], fitted)
    vectors.save()
    thresholds = choose_thresholds(organisations, searches)
    print_table(judge_all(organisations, searches, thresholds))
    print(thresholds)
    if not options.dry:
        fitted = replace(train(organisations, bases, start), thresholds=thresholds)
        WEIGHTS.write_bytes(orjson.dumps(round_numbers(asdict(fitted)), option=orjson.OPT_INDENT_2))


def round_numbers(value: object) -> object:
    if isinstance(value, dict):
        return {name: round_numbers(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_numbers(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


main()
