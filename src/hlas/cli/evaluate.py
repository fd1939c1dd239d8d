"""`hlas evaluate`: how well a tenant's agent answers a file of questions."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hlas.agent import evaluation
from hlas.agent.evaluation import CaseResult, Evaluation
from hlas.agent.loop import open_agent
from hlas.agent.money import dollars
from hlas.cli.database import AsJson, database_url, prepare, show, with_operators
from hlas.observe.metrics import Metrics
from hlas.store.db import Database
from hlas.store.logins import Logins
from hlas.tenants import tenants


def evaluate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='Lines such as {"question": "When do you open?", "words": ["9"]}; also '
            "expected_entry, tools, lang, context.",
        ),
    ],
    tenant: Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")],
    *,
    entries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Lines such as {"id": "hours", "question": "When do you open?"}: what '
            "expected_entry calls the entries. FILE.entries.jsonl is read if it is there.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a tenant's agent every question of a file. With a model this costs money."""
    cases = evaluation.read_cases(file)
    beside = file.with_suffix(".entries.jsonl")
    given = entries or (beside if beside.exists() else None)
    names = evaluation.read_names(given) if given else {}
    settings = prepare()

    async def work(operators: Database) -> Evaluation:
        found = await tenants.find_tenant(operators, tenant)
        async with open_agent(logins, settings, Metrics()) as agent:
            # On standard error, and only on a terminal.
            with typer.progressbar(
                length=len(cases),
                label="Asking",
                file=sys.stderr,
                hidden=not sys.stderr.isatty(),
            ) as bar:
                return await evaluation.evaluate(
                    operators,
                    agent,
                    found.id,
                    cases,
                    source=file.name,
                    names=names,
                    on_progress=bar.update,
                )

    with database_url(settings) as url:
        logins = Logins.from_settings(settings, url)
        result = with_operators(work)
    show(result, as_json=as_json, text=_describe(result))


def _describe(result: Evaluation) -> str:
    share = result.right / result.cases
    counts = f"{result.right} right ({share:.0%}), {result.offered} offered, {result.wrong} wrong"
    times = f"p50 {result.p50_seconds * 1000:.0f} ms, p95 {result.p95_seconds * 1000:.0f} ms"
    lines = [
        f"{result.cases} questions: {counts}, {result.unanswered} unanswered.",
        f"Cost {dollars.describe(result.cost)}; latency {times}.",
        *_describe_kinds(result),
    ]
    missed = [one for one in result.results if one.verdict != "right"]
    if missed:
        lines += ["", f"{'verdict':<11} {'source':<10} question"]
        lines += [_describe_case(one) for one in missed]
    return "\n".join(lines)


def _describe_kinds(result: Evaluation) -> list[str]:
    """A table, if the file has several kinds of questions."""
    kinds = list(dict.fromkeys(one.kind for one in result.results))
    if len(kinds) == 1:
        return []
    rows = [["kind", *evaluation.VERDICTS]]
    for kind in kinds:
        count = [one.verdict for one in result.results if one.kind == kind].count
        rows.append([kind or "-", *(str(count(verdict)) for verdict in evaluation.VERDICTS)])
    width = max(len(kind) for kind, *_ in rows)
    return ["", *(f"{kind:<{width}} " + _align(counts) for kind, *counts in rows)]


def _align(cells: Sequence[str]) -> str:
    return " ".join(
        f"{cell:>{len(verdict)}}" for cell, verdict in zip(cells, evaluation.VERDICTS, strict=True)
    )


def _describe_case(result: CaseResult) -> str:
    return f"{result.verdict:<11} {result.source:<10} {result.question}"
