"""Evaluation: questions with what is expected of their answers, asked of a tenant's agent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias, TypeVar, get_args
from uuid import UUID

import orjson
import uuid_utils
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas.agent import Answer
from hlas.agent.loop import ModelAgent, Trial
from hlas.errors import TenantError
from hlas.knowledge import entries, language
from hlas.knowledge.language import Language
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

MOST_CASES = 5000
KEPT = 20

Verdict: TypeAlias = Literal["right", "offered", "wrong", "unanswered"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
# The kind of questions to which small talk is the right answer.
SMALL_TALK = "smalltalk"
Text = Annotated[str, Field(min_length=1, max_length=2000)]


class EvaluationError(TenantError):
    """The file cannot be evaluated."""


class Case(BaseModel):
    """A line of the file. What is left out is not checked; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    question: Text
    lang: Language | None = None
    # What the visitor asked before.
    context: list[Text] = Field(default_factory=list, max_length=10)
    # The id or the question of the entry that answers it; null: nothing answers it.
    expected_entry: Text | None = None
    also_entry: Text | None = None
    # Words that the answer contains, whatever their case and accents.
    words: list[Text] = Field(default_factory=list, max_length=20)
    tools: list[Text] = Field(default_factory=list, max_length=20)
    kind: Annotated[str, Field(max_length=40)] = ""

    @property
    def entries(self) -> tuple[str, ...]:
        """Each of them answers it."""
        return tuple(name for name in (self.expected_entry, self.also_entry) if name)

    @property
    def is_uncovered(self) -> bool:
        is_null = "expected_entry" in self.model_fields_set and self.expected_entry is None
        return is_null and not self.words and not self.tools


class NamedEntry(BaseModel):
    """An entry that a file of questions calls by an id of its own."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    id: Text
    question: Text


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one question was answered."""

    question: str
    kind: str
    verdict: Verdict
    source: str
    reason: str | None
    seconds: float
    # In nano-dollars.
    cost: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A run over a file."""

    id: str
    source: str
    right: int
    wrong: int
    unanswered: int
    # In nano-dollars.
    cost: int
    p50_seconds: float
    p95_seconds: float
    # Not sure, with the right question among the suggestions.
    offered: int = 0
    results: tuple[CaseResult, ...] = field(default=())

    @property
    def cases(self) -> int:
        return self.right + self.offered + self.wrong + self.unanswered

    @classmethod
    def summarise(cls, source: str, results: Sequence[CaseResult]) -> Self:
        count = [result.verdict for result in results].count
        times = sorted(result.seconds for result in results)
        return cls(
            id=str(uuid_utils.uuid7()),
            source=source,
            right=count("right"),
            offered=count("offered"),
            wrong=count("wrong"),
            unanswered=count("unanswered"),
            cost=sum(result.cost for result in results),
            p50_seconds=times[len(times) // 2],
            p95_seconds=times[min(len(times) - 1, len(times) * 95 // 100)],
            results=tuple(results),
        )


@dataclass(frozen=True, slots=True)
class PastEvaluation:
    """A stored evaluation, as lists show it."""

    created_at: datetime
    evaluation: Evaluation

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["created_at"], Evaluation(**{**row["result"], "results": ()}))


Line = TypeVar("Line", bound=BaseModel)


def read_cases(path: Path) -> list[Case]:
    """The questions of a JSONL file; raise with the number of the first bad line."""
    cases = _read_lines(path, Case)
    if not cases:
        raise EvaluationError(f"{path}: no questions in it")
    if len(cases) > MOST_CASES:
        raise EvaluationError(f"{path}: at most {MOST_CASES} questions at a time")
    return cases


def read_names(path: Path) -> dict[str, str]:
    """What a file calls the entries: their questions by its own ids."""
    return {entry.id: entry.question for entry in _read_lines(path, NamedEntry)}


def _read_lines(path: Path, kind: type[Line]) -> list[Line]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise EvaluationError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EvaluationError(f"{path} is not UTF-8 text") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(kind.model_validate(orjson.loads(line)))
            except orjson.JSONDecodeError:
                raise EvaluationError(f"{path}, line {number}: not JSON") from None
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"])) or "line"
                raise EvaluationError(f"{path}, line {number}: {place}: {first['msg']}") from None
    return found


async def evaluate(
    operators: Database,
    agent: ModelAgent,
    tenant_id: UUID,
    cases: Sequence[Case],
    *,
    source: str,
    names: Mapping[str, str] | None = None,
    change: Change = COMMAND_LINE,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Ask the tenant's agent every question, one after the other, and store the result."""
    known = await _find_entries(operators, tenant_id, names or {})
    expected = {name for case in cases for name in case.entries}
    if expected and expected.isdisjoint(known):
        raise EvaluationError(
            f"the tenant has no entry {min(expected)!r}, nor any other that {source} expects; "
            "--entries FILE says what a file calls the entries"
        )
    results = []
    for case in cases:
        chosen = case.lang or language.detect(case.question) or "en"
        trial = await agent.try_out(str(tenant_id), case.question, chosen, tuple(case.context))
        results.append(_judge(case, trial, known))
        on_progress(1)
    evaluation = Evaluation.summarise(source, results)
    await _store(operators, tenant_id, evaluation, change)
    return evaluation


async def _find_entries(
    operators: Database, tenant_id: UUID, names: Mapping[str, str]
) -> dict[str, str]:
    """Ids of the tenant's entries by id, by question, and by the names of a file."""
    known = {
        name: str(entry.id)
        for entry in await entries.list_entries(operators, tenant_id)
        for name in (str(entry.id), entry.question)
    }
    return known | {name: known[text] for name, text in names.items() if text in known}


def _judge(case: Case, trial: Trial, known: Mapping[str, str]) -> CaseResult:
    answer = trial.answer
    is_answered = answer.text is not None and answer.source != "fallback"
    return CaseResult(
        question=case.question,
        kind=case.kind,
        verdict=_find_verdict(case, answer, known, is_answered=is_answered),
        source=answer.source if is_answered else "fallback",
        reason=answer.reason,
        seconds=trial.seconds,
        cost=answer.usage.cost,
    )


def _find_verdict(
    case: Case, answer: Answer, known: Mapping[str, str], *, is_answered: bool
) -> Verdict:
    if case.is_uncovered and case.kind == SMALL_TALK and is_answered:
        return "right" if answer.source == "smalltalk" else "wrong"
    if case.is_uncovered and case.kind != SMALL_TALK:
        return "wrong" if is_answered else "right"
    if is_answered:
        return "right" if _meets(case, answer, known) else "wrong"
    return "offered" if answer.suggestions and _has_entry(case, answer, known) else "unanswered"


def _meets(case: Case, answer: Answer, known: Mapping[str, str]) -> bool:
    is_entry = not case.entries or _has_entry(case, answer, known)
    text = language.fold(answer.text or "")
    has_words = all(language.fold(word) in text for word in case.words)
    return is_entry and has_words and set(case.tools) <= set(answer.tools_used)


def _has_entry(case: Case, answer: Answer, known: Mapping[str, str]) -> bool:
    """Sent, or offered."""
    return any(known.get(name) in answer.entries for name in case.entries)


async def _store(
    operators: Database, tenant_id: UUID, evaluation: Evaluation, change: Change
) -> None:
    # Without the questions: they are in the file, and may be visitors' own words.
    summary = {name: value for name, value in asdict(evaluation).items() if name != "results"}
    async with operators.transaction() as connection:
        await connection.execute(
            queries.add_evaluation, tenant_id, evaluation.id, evaluation.source, summary
        )
        await connection.execute(queries.forget_evaluations, tenant_id, KEPT)
        await record(
            connection, change, tenant_id, "agent.evaluate", evaluation.source, after=summary
        )


async def list_evaluations(database: Database, tenant_id: UUID) -> list[PastEvaluation]:
    """The last ones, newest first."""
    rows = await database.all(queries.list_evaluations, tenant_id)
    return [PastEvaluation.from_row(row) for row in rows]
