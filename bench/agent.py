"""Answers of a language model: what streaming them costs, beside the usual libraries."""

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

import uvloop

from bench import load, service
from bench.answers import Answer, ask_at_once
from bench.report import Row, at_least, at_most, plain
from bench.service import Service
from bench.store import Conversation, Store

DATABASE = "agent"
STREAMS = 64
TOKENS = 150
# 50 tokens a second.
SECONDS = 3.0
# The first two words are the times at which they were sent.
ASKED = f"say 2 stamps in 0.04 s say {TOKENS - 2} words in {SECONDS - 0.04:g} s"
WARM_UP = "say 20 words in 0.4 s"
ENTRIES = 40
OURS, PYDANTIC, OPENAI, OWN = "whole path", "pydantic-ai", "openai SDK", "our client alone"
LIBRARIES = {"pydantic-ai-slim[openai]": "2.66.0", "openai": "3.51.0"}
# The server under them is the same as ours.
SERVER = ("starlette", "uvicorn", "uvloop", "httptools")
INSTALL_SECONDS = 300.0

# Conversations without messages, and a model whose answer is what the question says.
PREPARE = """
truncate messages, idempotency_keys cascade;
update conversations set last_seq = 0, handler = 'agent';
insert into budgets (tenant_id) select id from tenants on conflict do nothing;
insert into models (name, base_url, model, input_price, output_price)
values ('scripted', '{url}', 'scripted', 1000000000, 1000000000);
insert into agent_settings (tenant_id, models) select id, '{{scripted}}' from tenants;
insert into knowledge (tenant_id, id, position, question, answer, language)
select t.id, uuidv7(), n,
       case n when 1 then '{asked}' when 2 then '{warm_up}' else 'Question number ' || n end,
       'Yes, it is in stock. We deliver within two days, answer number ' || n || '.', 'en'
from tenants t, generate_series(1, {entries}) n;
analyze;
"""


@dataclass(frozen=True)
class Plan:
    rounds: int


FULL = Plan(rounds=5)
QUICK = Plan(rounds=1)


@dataclass(frozen=True)
class Sample:
    """64 answers at once."""

    seconds: float
    # Milliseconds of CPU for 1,000 tokens.
    application: float
    database: float
    # Milliseconds from the provider's first word, and from the token that ended it, to the client.
    first_words: list[float]
    first_ends: list[float]


@dataclass
class Figures:
    samples: defaultdict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))

    def cpu(self, name: str) -> float:
        return median(sample.application for sample in self.samples[name])

    def slowdown(self, name: str) -> float:
        return median(sample.seconds for sample in self.samples[name]) / SECONDS

    def ratio(self, theirs: str) -> float:
        """Their CPU for one of ours: the median of the ratios of one round each."""
        pairs = zip(self.samples[theirs], self.samples[OURS], strict=True)
        return median(one.application / other.application for one, other in pairs)


def run(opened: Store, plan: Plan) -> Figures:
    opened.create(DATABASE)
    count = STREAMS * (plan.rounds + 1)
    opened.fill(DATABASE, count, 1)
    with ExitStack() as stack:
        start, directory = stack.enter_context, opened.directory
        receipts = directory / "receipts"
        url = start(service.run_model(receipts))
        opened.run(
            DATABASE,
            PREPARE.format(url=url, asked=ASKED, warm_up=WARM_UP, entries=ENTRIES),
        )
        conversations = opened.conversations(DATABASE, count)
        served = {
            OURS: start(
                service.serve_hlas(directory, opened.url(DATABASE), 1, RATE_LIMIT_STREAMS_IP="0")
            ),
            OWN: start(service.serve_endpoint(directory, Path(sys.executable), "own_client", url)),
        }
        if python := install_libraries(directory / "libraries"):
            for name, module in ((PYDANTIC, "pydantic_ai_agent"), (OPENAI, "openai_sdk")):
                served[name] = start(service.serve_endpoint(directory, python, module, url))
        figures = _Turns(opened, served, conversations, receipts).run(plan)
    opened.drop(DATABASE)
    return figures


def install_libraries(directory: Path) -> Path | None:
    """An environment of their own, so that they do not become dependencies of ours."""
    uv = Path(sys.executable).with_name("uv")
    wanted = [f"{name}=={number}" for name, number in LIBRARIES.items()]
    wanted += [f"{name}=={version(name)}" for name in SERVER]
    python = directory / "bin" / "python"
    try:
        for command in (
            ["venv", "--python", sys.executable, str(directory)],
            ["pip", "install", "--python", str(python), *wanted],
        ):
            subprocess.run([uv, *command], check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"the libraries cannot be installed, their rows are left out: {error}")
        return None
    return python


class _Turns:
    """All of them in turn, in each round; the order is reversed in every second one."""

    def __init__(
        self,
        opened: Store,
        served: dict[str, Service],
        conversations: list[Conversation],
        receipts: Path,
    ) -> None:
        self._store = opened
        self._served = served
        # Each conversation is used once, because the history is part of the prompt.
        self._conversations = iter(conversations)
        self._receipts = receipts

    def run(self, plan: Plan) -> Figures:
        figures = Figures()
        for name in self._served:
            self._ask(name, WARM_UP)
        for number in range(plan.rounds):
            for name in self._served if number % 2 == 0 else reversed(self._served):
                sample = self._measure(name)
                figures.samples[name].append(sample)
                _say(
                    f"  agent, {name:17} {sample.seconds:5.2f} s  "
                    f"CPU {sample.application:6.1f} + {sample.database:5.1f} ms  "
                    f"first word {_quantiles(sample.first_words)}, "
                    f"its end {_quantiles(sample.first_ends)}"
                )
        return figures

    def _measure(self, name: str) -> Sample:
        self._store.settle()
        # What the last turn left behind is not part of this one.
        time.sleep(0.5)
        served = self._served[name]
        before = served.processor_seconds(), self._store.processor_seconds()
        answers, seconds = self._ask(name, ASKED)
        application, database = (
            (after - start) * 1e6 / (STREAMS * TOKENS)
            for start, after in zip(
                before,
                (served.processor_seconds(), self._store.processor_seconds()),
                strict=True,
            )
        )
        words = [answer.list_words() for answer in answers]
        if counts := {len(one) for one in words} - {TOKENS}:
            raise RuntimeError(f"{name}: answers of {counts} words")
        first_words, first_ends = (
            sorted(
                (answer.first_word_at - int(one[place])) / 1e6
                for answer, one in zip(answers, words, strict=True)
            )
            for place in (0, 1)
        )
        return Sample(seconds, application, database, first_words, first_ends)

    def _ask(self, name: str, text: str) -> tuple[list[Answer], float]:
        if name == OURS:
            taken = [next(self._conversations) for _ in range(STREAMS)]
            requests = load.replies(taken, text)
        else:
            requests = load.endpoint_asks(STREAMS, text)
        with self._require_requests(STREAMS):
            answers, seconds = uvloop.run(ask_at_once(self._served[name].port, requests))
        if name == OURS and any(b'"source": "agent"' not in answer.raw for answer in answers):
            raise RuntimeError("an answer is not the model's")
        return answers, seconds

    @contextmanager
    def _require_requests(self, count: int) -> Iterator[None]:
        """The provider is asked once for each answer."""
        before = self._count_requests()
        yield
        if (found := self._count_requests() - before) != count:
            raise RuntimeError(f"{found} requests to the provider for {count} answers")

    def _count_requests(self) -> int:
        return len(self._receipts.read_text().splitlines()) if self._receipts.exists() else 0


def rows(figures: Figures) -> list[Row]:
    streams = f"{STREAMS} answers at once, 1 worker"
    cpu = figures.cpu(OURS)
    database = median(sample.database for sample in figures.samples[OURS])
    return [
        at_most(f"{streams}: time : of the provider alone", figures.slowdown(OURS), 1.1),
        Row(
            "CPU of the worker for 1,000 tokens, provider to browser",
            f"{cpu:.1f} ms",
            "at most 100 ms",
            cpu <= 100,
        ),
        Row("CPU of the database for 1,000 tokens", f"{database:.1f} ms"),
        _first(figures, "first word in the browser, after the provider sent it", ends=False),
        _first(figures, "first word in the browser, after the token that ends it", ends=True),
        *_compare(figures),
        *(
            Row(
                f"{streams}: bare Starlette endpoint, {name}",
                f"CPU {figures.cpu(name):.1f} ms for 1,000 tokens; "
                f"time {figures.slowdown(name):.2f}x; "
                f"first word {_quantiles(_merge(figures, name))}",
            )
            for name in (OWN, OPENAI, PYDANTIC)
            if name in figures.samples
        ),
    ]


def _compare(figures: Figures) -> list[Row]:
    if PYDANTIC not in figures.samples:
        return [Row("bare endpoints with pydantic-ai and the openai SDK", "cannot be installed")]
    return [
        at_least(
            "CPU of a bare endpoint with pydantic-ai : of our whole path",
            figures.ratio(PYDANTIC),
            3,
        ),
        plain(
            "CPU of a bare endpoint with the openai SDK : of our whole path",
            figures.ratio(OPENAI),
        ),
    ]


def _first(figures: Figures, what: str, *, ends: bool) -> Row:
    delays = _merge(figures, OURS, ends=ends)
    return Row(what, _quantiles(delays), "p50 at most 10 ms", median(delays) <= 10)


def _merge(figures: Figures, name: str, *, ends: bool = False) -> list[float]:
    return sorted(
        delay
        for sample in figures.samples[name]
        for delay in (sample.first_ends if ends else sample.first_words)
    )


def _quantiles(delays: list[float]) -> str:
    return f"p50 {median(delays):.1f} ms, p95 {delays[int(len(delays) * 0.95)]:.1f} ms"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
