"""Evaluation: questions of a file, asked of a tenant's agent."""

from pathlib import Path
from uuid import UUID

import orjson
import pytest

from factories import Live, Site, make_site
from hlas.agent import evaluation
from hlas.agent.evaluation import Case, Evaluation, EvaluationError
from hlas.demo import tenant as demo
from hlas.store.db import Database
from modelled import COVERED, give_model
from scripted_model import ScriptedModel


async def evaluate(site: Site, operators: Database, *cases: Case) -> Evaluation:
    agent = site.live.app.state.services.agent
    return await evaluation.evaluate(
        operators, agent, UUID(site.tenant_id), cases, source="file.jsonl"
    )


def make_case(**fields: object) -> Case:
    return Case.model_validate(fields)


async def test_verdicts(live_server: Live, operators: Database) -> None:
    """Right, wrong or unanswered: by the entry, by words, by tools, and for what nothing covers."""
    site = await make_site(live_server, operators, handler="agent")
    async with ScriptedModel() as provider:
        await give_model(operators, site.tenant_id, provider.url)
        entry = COVERED
        cites = f"{entry}\nrepeat It costs 99 crowns [1]."
        result = await evaluate(
            site,
            operators,
            make_case(question=cites, expected_entry=entry, words=["CROWNS", "99"]),
            make_case(question=cites, expected_entry="When are you open?"),
            make_case(question=cites, words=["pounds"]),
            make_case(question=cites, expected_entry=None),
            make_case(question="fail 500 whale banana plane", words=["x"], lang="en"),
            make_case(
                question='call search_knowledge {"query": "open"} then repeat Done [1].',
                tools=["search_knowledge"],
            ),
        )
    # One for each question, and one more after the tool.
    assert len(provider.requests) == 7
    verdicts = [one.verdict for one in result.results]
    assert verdicts == ["right", "wrong", "wrong", "wrong", "unanswered", "right"]
    assert (result.right, result.wrong, result.unanswered, result.cases) == (2, 3, 1, 6)
    assert result.results[4].reason == "model_failed"
    row = await operators.one("select sum(amount)::bigint as spent from spend")
    assert row is not None
    assert 0 < result.cost <= row["spent"]


async def test_demo(live_server: Live, operators: Database) -> None:
    """The demo's questions are answered from the demo's knowledge, without a model."""
    site = await make_site(live_server, operators, handler="agent")
    await demo.load_demo(operators, UUID(site.tenant_id))
    cases = evaluation.read_cases(demo.HERE / "questions.jsonl")
    result = await evaluate(site, operators, *cases)
    assert [one.question for one in result.results if one.verdict == "wrong"] == []
    assert result.right >= 13
    assert result.cost == 0


async def test_past_runs(live_server: Live, operators: Database) -> None:
    """The last runs are kept without the questions, newest first; others are forgotten."""
    site = await make_site(live_server, operators, handler="agent")
    for number in range(3):
        await evaluate(site, operators, make_case(question=f"Something new {number}?"))
    [newest, *_] = found = await evaluation.list_evaluations(operators, UUID(site.tenant_id))
    assert (len(found), newest.evaluation.cases, newest.evaluation.results) == (3, 1, ())
    rows = await operators.all("select result from evaluations")
    assert "Something new" not in orjson.dumps([row["result"] for row in rows]).decode()
    assert evaluation.KEPT >= 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no questions in it"),
        ("{}\n", "line 1: question: Field required"),
        ('{"question": "a"}\nnot json\n', "line 2: not JSON"),
        ('{"question": ""}', "line 1: question: "),
        ('{"question": "a", "words": "b"}', "line 1: words: "),
    ],
)
def test_bad_files(tmp_path: Path, content: str, reason: str) -> None:
    """A bad file is one line that says where."""
    path = tmp_path / "questions.jsonl"
    path.write_text(content)
    with pytest.raises(EvaluationError) as raised:
        evaluation.read_cases(path)
    assert reason in str(raised.value)


def test_extra_fields(tmp_path: Path) -> None:
    """Fields that are not known, and empty lines, are ignored."""
    path = tmp_path / "questions.jsonl"
    path.write_text('\ufeff{"kb": "x", "question": "a", "expected_entry": null}\n\n')
    [case] = evaluation.read_cases(path)
    assert case.is_uncovered
