"""Live conversations: what runs and readers cost, how soon a reader sees a message, idle streams.

Run alone: python -m bench.live [--quick]
"""

import asyncio
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

import psutil

from bench import load, service, store
from bench.report import Row, at_most, plain, table
from bench.service import Service
from bench.store import Conversation, Store
from bench.streams import Readers, send_steadily
from hlas import log

DATABASE = "live"
CONVERSATIONS = 256
ENTRIES = 40
# Messages a second at which costs are compared: no visitor waits, and no run answers two messages.
RATE = 60.0
SETTLE_SECONDS = 1.5
NO_LIMITS = {
    "RATE_LIMIT_STREAMS_IP": "0",
    "RATE_LIMIT_STREAMS_CONVERSATION": "0",
    "MAX_CONNECTIONS_IP": "0",
}
OPEN_FILES = 20_000

# Each tenant knows the answer to what load.TEXT asks, among others.
KNOWLEDGE = f"""
insert into knowledge (tenant_id, id, position, question, answer, language)
select t.id, uuidv7(), n,
       case n when 1 then 'Do you have the blue one in stock?' else 'Question number ' || n end,
       'Yes, it is in stock. We deliver within two days, answer number ' || n || '.', 'en'
from tenants t, generate_series(1, {ENTRIES}) n;
analyze knowledge;
"""


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float
    streams: int
    idle_seconds: float
    # Messages whose delay is measured, on each of the two workers.
    delays: int


FULL = Plan(rounds=3, seconds=10, streams=5000, idle_seconds=45, delays=1500)
QUICK = Plan(rounds=1, seconds=4, streams=500, idle_seconds=16, delays=200)


@dataclass(frozen=True)
class Cost:
    """Microseconds of CPU per message, beyond what the idle server uses."""

    application: float
    database: float

    @property
    def total(self) -> float:
        return self.application + self.database

    def __str__(self) -> str:
        return f"CPU {self.application:.0f} + {self.database:.0f} us"


@dataclass
class Figures:
    plan: Plan
    costs: defaultdict[str, list[Cost]] = field(default_factory=lambda: defaultdict(list))
    rates: dict[str, float] = field(default_factory=dict)
    # Seconds, sorted.
    delays: dict[str, list[float]] = field(default_factory=dict)
    stream_bytes: float = 0.0
    idle_share: float = 0.0
    idle_database_share: float = 0.0
    p99_alone: float = 0.0
    p99_beside: float = 0.0

    def cost(self, name: str) -> Cost:
        taken = self.costs[name]
        return Cost(median(one.application for one in taken), median(one.database for one in taken))

    def ratio(self, name: str, bare: float = 1) -> float:
        """The median of the ratios of one round each."""
        pairs = zip(self.costs[name], self.costs["bare"], strict=True)
        return median(one.total / (other.total * bare) for one, other in pairs)


def run(opened: Store, plan: Plan) -> Figures:
    _raise_open_files()
    opened.create(DATABASE)
    opened.fill(DATABASE, (plan.streams + CONVERSATIONS) * 2, 2)
    opened.run(DATABASE, KNOWLEDGE)
    found = opened.conversations(DATABASE, plan.streams + CONVERSATIONS)
    bare, asked = found[:CONVERSATIONS], found[CONVERSATIONS : 2 * CONVERSATIONS]
    ids = ", ".join(f"'{one.id}'" for one in asked)
    opened.run(DATABASE, f"update conversations set handler = 'agent' where id in ({ids})")
    figures = Figures(plan)
    with ExitStack() as stack:
        url, start = opened.url(DATABASE), stack.enter_context
        first, second = (
            start(service.serve_hlas(opened.directory, url, 1, **NO_LIMITS)) for _ in range(2)
        )
        _Costs(opened, first, bare, asked, figures).run()
        asyncio.run(_measure_delays(first, second, bare, figures))
    with service.serve_hlas(opened.directory, opened.url(DATABASE), 1, **NO_LIMITS) as served:
        asyncio.run(_measure_idle(opened, served, found, bare, figures))
    opened.drop(DATABASE)
    return figures


def _raise_open_files() -> None:
    """A stream is a file on either side; servers inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class _Costs:
    """The same messages at the same rate: nobody answers, the agent answers, somebody reads."""

    def __init__(
        self,
        opened: Store,
        served: Service,
        bare: list[Conversation],
        asked: list[Conversation],
        figures: Figures,
    ) -> None:
        self._store = opened
        self._service = served
        self._bare, self._asked = bare, asked
        self._figures = figures

    def run(self) -> None:
        kinds: dict[str, Callable[[], Coroutine[None, None, Cost]]] = {
            "bare": lambda: self._measure(self._bare),
            "reader": lambda: self._measure_read(self._bare),
            "run": lambda: self._measure(self._asked),
            "run and reader": lambda: self._measure_read(self._asked),
        }
        port, plan = self._service.port, self._figures.plan
        asyncio.run(send_steadily(port, load.sends(self._bare + self._asked), RATE * 4, 3))
        for number in range(plan.rounds):
            for name in kinds if number % 2 == 0 else reversed(kinds):
                self._store.settle()
                cost = asyncio.run(kinds[name]())
                self._figures.costs[name].append(cost)
                _say(f"  live, {name:14} {cost}")
        sends = load.sends(self._bare)
        done = load.run(port, sends, connections=64, seconds=plan.seconds)
        self._figures.rates["bare"] = done.rate
        self._figures.rates["run and reader"] = asyncio.run(self._ask(plan.seconds))

    async def _ask(self, seconds: float) -> float:
        async with Readers(self._service.port, self._asked[:64]) as readers:
            return await readers.ask_in_turns(seconds)

    async def _measure_read(self, conversations: list[Conversation]) -> Cost:
        async with Readers(self._service.port, conversations) as readers:
            cost = await self._measure(conversations)
            readers.require_open()
        return cost

    async def _measure(self, conversations: list[Conversation]) -> Cost:
        seconds = self._figures.plan.seconds
        answers = await self._count_answers()
        idle = await self._use(seconds / 2)
        before = self._used()
        started = time.perf_counter()
        sends = load.sends(conversations)
        count = await send_steadily(self._service.port, sends, RATE, seconds)
        await asyncio.sleep(SETTLE_SECONDS)
        used, elapsed = self._used(), time.perf_counter() - started
        expected = count if conversations is self._asked else 0
        if (found := await self._count_answers() - answers) != expected:
            raise RuntimeError(f"{count} messages and {found} answers")
        application, database = (
            (after - start - rate * elapsed) / count * 1e6
            for start, after, rate in zip(before, used, idle, strict=True)
        )
        return Cost(application, database)

    async def _use(self, seconds: float) -> tuple[float, float]:
        """Seconds of CPU that the idle server and its database use in a second."""
        before = self._used()
        await asyncio.sleep(seconds)
        application, database = (
            (after - start) / seconds for start, after in zip(before, self._used(), strict=True)
        )
        return application, database

    def _used(self) -> tuple[float, float]:
        return self._service.processor_seconds(), self._store.processor_seconds()

    async def _count_answers(self) -> int:
        """Once no run is under way any more."""
        query = (
            "select (select count(*) from runs where state in ('waiting', 'running')), "
            "(select count(*) from messages where role = 'assistant')"
        )
        while True:
            [row] = await asyncio.to_thread(self._store.rows, DATABASE, query)
            if not row[0]:
                return int(row[1])
            await asyncio.sleep(0.2)


async def _measure_delays(
    first: Service, second: Service, bare: list[Conversation], figures: Figures
) -> None:
    """Readers on the first worker, messages through either."""
    count, sends = figures.plan.delays, load.sends(bare)
    for name, writer in (("same worker", first), ("other worker", second)):
        async with Readers(first.port, bare) as readers:
            sent = await send_steadily(writer.port, sends, RATE, count / RATE)
            await asyncio.sleep(SETTLE_SECONDS)
            delays = sorted(readers.delays)
        if len(delays) != sent:
            raise RuntimeError(f"{sent} messages and {len(delays)} arrived")
        figures.delays[name] = delays
        _say(f"  live, {name}: {_quantiles(delays)}")


async def _measure_idle(
    opened: Store,
    served: Service,
    conversations: list[Conversation],
    bare: list[Conversation],
    figures: Figures,
) -> None:
    """Streams on which nothing happens, and messages of other visitors beside them."""
    plan = figures.plan
    reading, writing = conversations[len(bare) :], bare
    # What the first streams and messages allocate once is not a stream's.
    async with Readers(served.port, reading[:100]):
        figures.p99_alone = await _measure_p99(served, writing, plan.seconds)
    await asyncio.sleep(SETTLE_SECONDS)
    figures.p99_alone = await _measure_p99(served, writing, plan.seconds)
    before = _count_bytes(served)
    async with Readers(served.port, reading) as readers:
        await asyncio.sleep(SETTLE_SECONDS)
        figures.stream_bytes = (_count_bytes(served) - before) / len(reading)
        used, used_database = served.processor_seconds(), opened.processor_seconds()
        started = time.perf_counter()
        await asyncio.sleep(plan.idle_seconds)
        seconds = time.perf_counter() - started
        figures.idle_share = (served.processor_seconds() - used) / seconds
        figures.idle_database_share = (opened.processor_seconds() - used_database) / seconds
        figures.p99_beside = await _measure_p99(served, writing, plan.seconds)
        readers.require_open()
    _say(
        f"  live, {len(reading):,} idle streams: {figures.stream_bytes / 1024:.1f} kB each, "
        f"{figures.idle_share:.1%} of a core"
    )


async def _measure_p99(served: Service, conversations: list[Conversation], seconds: float) -> float:
    """Of 32 visitors who send five messages a second each, at most."""
    sends = load.sends(conversations)
    outcome = await asyncio.to_thread(
        load.run, served.port, sends, connections=32, seconds=seconds, delay_ms=200
    )
    if outcome.broken or outcome.refused:
        raise RuntimeError(f"messages beside streams failed: {outcome}")
    return outcome.p99


def _count_bytes(served: Service) -> int:
    """Resident memory of the server's processes."""
    parent = psutil.Process(served.pid)
    return sum(one.memory_info().rss for one in (parent, *parent.children(recursive=True)))


def rows(figures: Figures) -> list[Row]:
    streams = f"{figures.plan.streams:,} idle streams, 1 worker"
    kilobytes, share = figures.stream_bytes / 1024, figures.idle_share
    same, other = (figures.delays[f"{which} worker"] for which in ("same", "other"))
    both = "CPU of a message with its run and a live reader"
    return [
        at_most(f"{both} : of a bare message", figures.ratio("run and reader"), 1.5),
        plain(f"{both} : of two bare messages", figures.ratio("run and reader", 2)),
        plain("CPU of a message with its run : of a bare message", figures.ratio("run")),
        plain("CPU of a message with a live reader : of a bare message", figures.ratio("reader")),
        *(
            Row(f"{text}, 1 worker, {RATE:.0f} a second", str(figures.cost(name)))
            for text, name in (
                ("a bare message", "bare"),
                ("a message with a live reader", "reader"),
                ("a message with its run", "run"),
                ("a message with its run and a live reader", "run and reader"),
            )
        ),
        Row("bare messages, 1 worker, 64 connections", f"{figures.rates['bare']:,.0f}/s"),
        Row(
            "answers seen by live readers, 1 worker, 64 visitors who ask again at once",
            f"{figures.rates['run and reader']:,.0f}/s",
        ),
        _delay("from commit to a reader on the same worker", same, 20),
        _delay("from commit to a reader on another worker", other, 150),
        Row(f"{streams}: memory each", f"{kilobytes:.1f} kB", "under 30 kB", kilobytes < 30),
        Row(f"{streams}: share of a core", f"{share:.1%}", "under 5%", share < 0.05),
        Row(f"{streams}: share of a core, database", f"{figures.idle_database_share:.1%}"),
        at_most(
            f"p99 of messages beside {streams} : without streams",
            figures.p99_beside / figures.p99_alone,
            1.5,
        ),
    ]


def _delay(what: str, delays: list[float], most: float) -> Row:
    target = f"p50 under {most:.0f} ms"
    return Row(what, _quantiles(delays), target, median(delays) * 1e3 < most)


def _quantiles(delays: list[float]) -> str:
    p99 = delays[int(len(delays) * 0.99)]
    return f"p50 {median(delays) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    log.configure("warning")
    with store.open_store() as opened:
        figures = run(opened, QUICK if "--quick" in sys.argv else FULL)
    print(table(rows(figures)))


if __name__ == "__main__":
    main()
