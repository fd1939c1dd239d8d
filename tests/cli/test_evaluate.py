"""`hlas evaluate` on the command line: output and exit status."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest

from hlas.demo import tenant as demo
from hlas.store.db import Database
from hlas.tenants import tenants
from modelled import give_model
from processes import environment, hlas
from scripted_model import ScriptedModel

QUESTIONS = demo.HERE / "questions.jsonl"
RIGHT = '{"question": "repeat It costs 99 crowns [1].", "words": ["crowns"], "kind": "price"}'
WRONG = '{"question": "repeat It costs 99 crowns [1].", "words": ["pounds"]}'
COUNTS = r"(\d+) questions: (\d+) right \(\d+%\), (\d+) offered, (\d+) wrong, (\d+) unanswered\."
LATENCY = re.compile(r"latency p50 \d+ ms, p95 \d+ ms\.")

Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = hlas("evaluate", *arguments, cwd=tmp_path, **environment(database_url))
        return done.returncode, done.stdout, done.stderr

    return run


async def test_demo(run: Run, operators: Database) -> None:
    """Without a model the knowledge answers the demo's questions, for nothing."""
    made = await tenants.add(operators, "Shop", "shop", [])
    await demo.load_demo(operators, made.id)
    code, out, _ = run(str(QUESTIONS), "--tenant", "shop")
    assert code == 0
    summary, *rest = out.split("\n\n")
    first, second = summary.splitlines()
    counts = re.fullmatch(COUNTS, first)
    assert counts is not None
    right, offered, wrong, unanswered = map(int, counts.groups()[1:])
    asked = len(QUESTIONS.read_text().splitlines())
    assert int(counts[1]) == right + offered + unanswered == asked
    # On a busy machine a search may take too long, and is skipped.
    assert (right >= 13, wrong) == (True, 0)
    assert second.startswith("Cost $0.00; ")
    assert LATENCY.search(second)
    kinds, *missed = (part.splitlines() for part in rest)
    assert kinds[0].split() == ["kind", "right", "offered", "wrong", "unanswered"]
    assert sum(int(count) for line in kinds[1:] for count in line.split()[1:]) == asked
    # A header comes before those that were missed.
    assert sum(len(part) - 1 for part in missed) == offered + unanswered


async def test_output(run: Run, operators: Database, tmp_path: Path) -> None:
    """With a model: text that names what was missed, and JSON with every question and its cost.

    Wrong answers are a result, not a failure of the command.
    """
    made = await tenants.add(operators, "Shop", "shop", [])
    (tmp_path / "file.jsonl").write_text(f"{RIGHT}\n\n{WRONG}\n")
    async with ScriptedModel() as provider:
        await give_model(operators, str(made.id), provider.url)
        text = await asyncio.to_thread(run, "file.jsonl", "--tenant", "shop")
        printed = await asyncio.to_thread(run, "file.jsonl", "--tenant", "shop", "--json")
        assert len(provider.requests) == 4
    code, out, err = text
    assert (code, err) == (0, "")
    first, second, *rest = out.splitlines()
    assert first == "2 questions: 1 right (50%), 0 offered, 1 wrong, 0 unanswered."
    assert re.match(r"Cost \$\d\.\d{4}; ", second)
    assert LATENCY.search(second)
    assert rest == [
        "",
        "kind  right offered wrong unanswered",
        "price     1       0     0          0",
        "-         0       0     1          0",
        "",
        "verdict     source     question",
        "wrong       agent      repeat It costs 99 crowns [1].",
    ]
    code, out, err = printed
    assert (code, err) == (0, "")
    result = orjson.loads(out)
    assert (result["source"], result["right"], result["wrong"]) == ("file.jsonl", 1, 1)
    assert [(one["verdict"], one["kind"]) for one in result["results"]] == [
        ("right", "price"),
        ("wrong", ""),
    ]
    row = await operators.one("select sum(amount)::bigint as amount from spend")
    assert row is not None
    # The same questions twice.
    assert row["amount"] == 2 * result["cost"] > 0


async def test_errors(run: Run, operators: Database, tmp_path: Path) -> None:
    """A bad file, a file that is not there, and an unknown tenant are an error of one line."""
    await tenants.add(operators, "Shop", "shop", [])
    (tmp_path / "bad.jsonl").write_text(f"{RIGHT}\nnot json\n")
    (tmp_path / "good.jsonl").write_text(f"{RIGHT}\n")
    assert run("bad.jsonl", "--tenant", "shop") == (1, "", "hlas: bad.jsonl, line 2: not JSON\n")
    code, out, err = run("missing.jsonl", "--tenant", "shop")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("hlas: missing.jsonl cannot be read")
    code, out, err = run("good.jsonl", "--tenant", "nobody")
    assert (code, out) == (1, "")
    assert err == "hlas: there is no tenant 'nobody'; `hlas tenant list` shows all\n"
    (tmp_path / "other.jsonl").write_text('{"question": "a", "expected_entry": "hours"}\n')
    (tmp_path / "names.jsonl").write_text('{"id": "hours"}\n')
    code, out, err = run("other.jsonl", "--tenant", "shop")
    assert (code, out) == (1, "")
    assert err == (
        "hlas: the tenant has no entry 'hours', nor any other that other.jsonl expects; "
        "--entries FILE says what a file calls the entries\n"
    )
    code, out, err = run("other.jsonl", "--tenant", "shop", "--entries", "names.jsonl")
    assert err == "hlas: names.jsonl, line 1: question: Field required\n"
    code, out, _ = run("good.jsonl")
    assert (code, out) == (2, "")
    assert await operators.all("select 1 from evaluations") == []
