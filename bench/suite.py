"""What is measured, in which order. Services take turns, so that a slow minute affects all."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from bench import load, machine, pgbench, service
from bench.empty import DIRECT, ROUTED
from bench.store import Store
from bench.trial import Sample, Target

CONVERSATIONS = 256
SMALL = 10_240
FLOOD = "198.51.100.7"
# The server trusts 127.0.0.1 as a proxy, but not this address.
DIRECT_FLOOD = "127.0.0.3"
# Messages an hour from one address: a flood exceeds it at once, a visitor never.
ALLOWED = 100
ADDRESSES_EACH = 16
# The cost of limits is smaller than the variation between seconds and between equal processes, so
# there are many short turns, and three new pairs of servers in each round.
LIMIT_PAIRS = 3
LIMIT_TURNS = 6

Samples = dict[str, list[Sample]]


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float
    large: int
    connections: tuple[int, ...]
    sweep_rounds: int


FULL = Plan(rounds=3, seconds=4, large=5_000_000, connections=(1, 4, 16, 64, 256), sweep_rounds=3)
QUICK = Plan(rounds=1, seconds=2, large=102_400, connections=(1, 64), sweep_rounds=1)


class Suite:
    def __init__(self, store: Store, plan: Plan) -> None:
        self.store = store
        self.plan = plan
        self.samples: Samples = defaultdict(list)
        self.syncs: list[machine.Sync] = []
        self.bytes_each = 0.0
        self._stack = ExitStack()

    def run(self) -> None:
        with self._stack:
            self._prepare()
            for number in range(self.plan.rounds):
                _say(f"round {number + 1} of {self.plan.rounds}")
                self.syncs.append(machine.sync_time(self.store.directory))
                self._throughput()
            _say("limits on and off, in turns")
            for _ in range(LIMIT_PAIRS * self.plan.rounds):
                self._limits()
            for number in range(self.plan.rounds):
                _say(f"load and size, round {number + 1} of {self.plan.rounds}")
                self._half_load()
                self._sizes()
                self._flood()
            for number in range(self.plan.sweep_rounds):
                _say(f"connections, round {number + 1} of {self.plan.sweep_rounds}")
                self._connections()

    def _prepare(self) -> None:
        store = self.store
        for name, messages, each in (
            ("main", SMALL, 40),
            ("small", SMALL, 40),
            ("large", self.plan.large, 100),
        ):
            _say(f"filling a database with {messages:,} messages")
            store.create(name)
            store.fill(name, messages, each)
        self.bytes_each = store.bytes_each("large")
        self.conversations = store.conversations("main", CONVERSATIONS)
        pgbench.prepare(store, "main")
        start, directory = self._stack.enter_context, store.directory
        url, admin = store.url("main"), store.superuser_url("main")
        self.two = self._target(start(service.serve_hlas(directory, url, 2)))
        self.one = self._target(start(service.serve_hlas(directory, url, 1)))
        self.shared = self.two
        if service.REDIS:
            redis = start(service.run_redis())
            self.shared = self._target(
                start(service.serve_hlas(directory, url, 2, REDIS_URL=redis))
            )
        limit = f"{ALLOWED}/h"
        guarded = {
            "TRUSTED_PROXIES": "127.0.0.1/32",
            "RATE_LIMIT_MESSAGES_IP": limit,
            "RATE_LIMIT_SESSION_IP": limit,
        }
        self.guarded = self._target(start(service.serve_hlas(directory, url, 1, **guarded)))
        self.empty = self._target(start(service.serve_empty(directory, url)))
        self.plain_two = self._target(start(service.serve_plain(directory, admin, 2)))
        self.plain_one = self._target(start(service.serve_plain(directory, admin, 1)))
        self.large = start(service.serve_hlas(directory, store.url("large"), 2))
        self.small = start(service.serve_hlas(directory, store.url("small"), 2))
        self._warm_up()

    def _target(self, served: service.Service) -> Target:
        """A target with the suite's conversations, because another query would return others."""
        return Target(served, self.store, "main", self.conversations)

    def _warm_up(self) -> None:
        """Open connections and prepare statements before the measurement."""
        sends = load.sends(self.conversations)
        for target in (self.two, self.shared, self.one, self.plain_two, self.plain_one):
            load.run(target.service.port, sends, connections=64, seconds=2)
        # The same key for all, because the scope of a key is one conversation.
        self.replays = load.sends(self.conversations, key="sent-before")
        if set(load.once(self.two.service.port, self.replays)) != {200}:
            raise RuntimeError("the messages to be replayed were not stored")
        self.flood = load.sends(self.conversations, address=FLOOD)
        self.session_flood = load.session_opens(self.conversations, address=FLOOD)
        port = self.guarded.service.port
        opens = self.session_flood * (ALLOWED // len(self.session_flood) + 1)
        for statuses in (
            load.once(port, self.flood),
            load.once(port, sends, DIRECT_FLOOD),
            load.once(port, opens),
        ):
            allowed = len(statuses) - statuses.count(429)
            if allowed != ALLOWED:
                raise RuntimeError(f"{allowed} let through, {ALLOWED} allowed")

    def _throughput(self) -> None:
        seconds = self.plan.seconds
        sends = load.sends(self.conversations)

        def writes(target: Target) -> Callable[[], Sample]:
            return lambda: target.run(sends, seconds=seconds, writes=True)

        def reads(target: Target, requests: list[str]) -> Callable[[], Sample]:
            return lambda: target.run(requests, seconds=seconds)

        turns = {
            "ours 2": writes(self.two),
            **({"redis 2": writes(self.shared)} if service.REDIS else {}),
            "pgbench bare": lambda: self._pgbench("bare"),
            "pgbench single": lambda: self._pgbench("single"),
            "ours 1": writes(self.one),
            "plain 2": writes(self.plain_two),
            "plain 1": writes(self.plain_one),
            "pgbench transaction": lambda: self._pgbench("transaction"),
            "pgbench gapless": lambda: self._pgbench("gapless"),
            "replays": reads(self.two, self.replays),
            "empty": reads(self.empty, load.empty_posts(self.conversations, ROUTED)),
            "empty direct": reads(self.empty, load.empty_posts(self.conversations, DIRECT)),
            "history": reads(self.two, load.history_reads(self.conversations)),
            "sessions": reads(self.two, load.session_opens(self.conversations)),
        }
        # The order is reversed in every round.
        names = list(turns)
        for name in names if len(self.samples["ours 2"]) % 2 == 0 else reversed(names):
            self._take(name, turns[name]())

    def _limits(self) -> None:
        sends, url = load.sends(self.conversations), self.store.url("main")
        seconds = max(1, self.plan.seconds / 4)
        off = dict.fromkeys(service.LIMITS, "off")
        with ExitStack() as stack:
            pair = []
            for name, changes in (("limited", {}), ("unlimited", off)):
                served = stack.enter_context(
                    service.serve_hlas(self.store.directory, url, 1, **changes)
                )
                pair.append((name, self._target(served)))
            for _, target in pair:
                load.run(target.service.port, sends, connections=64, seconds=1)
            for _ in range(LIMIT_TURNS):
                pair.reverse()
                for name, target in pair:
                    self._take(name, target.run(sends, seconds=seconds, writes=True))

    def _pgbench(self, script: str, rate: float = 0) -> Sample:
        self.store.settle()
        used = self.store.processor_seconds()
        done = pgbench.run(
            self.store, "main", script, connections=64, seconds=self.plan.seconds, rate=rate
        )
        cost = (self.store.processor_seconds() - used) / max(done.count, 1) * 1e6
        return Sample(done.rate, done.p50, done.p99, database=cost)

    def _half_load(self) -> None:
        sends = load.sends(self.conversations)
        for name, target in (("half 2", self.two), ("half 1", self.one)):
            pause = self._pause(f"ours {name[-1]}", 0.5)
            sample = target.run(sends, seconds=self.plan.seconds, delay_ms=pause, writes=True)
            self._take(name, sample)
        # The database alone at half of its maximum rate, for comparison.
        for script in ("bare", "single"):
            rate = max(sample.rate for sample in self.samples[f"pgbench {script}"]) / 2
            self._take(f"half pgbench {script}", self._pgbench(script, rate))

    def _pause(self, name: str, share: float) -> int:
        """The pause of each of 64 visitors, in ms, that gives this share of the full load."""
        full = max(sample.rate for sample in self.samples[name])
        return max(1, round(64 / (full * share) * 1000))

    def _sizes(self) -> None:
        # Removes the messages of the last round.
        self.store.fill("small", SMALL, 40)
        for name, served in (("small", self.small), ("large", self.large)):
            conversations = self.store.conversations(name, CONVERSATIONS)
            target = Target(served, self.store, name, conversations)
            sends = load.sends(conversations)
            self._take(name, target.run(sends, seconds=self.plan.seconds, writes=True))

    def _flood(self) -> None:
        """Visitors with their own addresses, alone and beside an address far over its limit."""
        seconds = self.plan.seconds
        # The same requests through the same proxy, from other addresses.
        self._take("accepted", self.guarded.run(self._visits(), seconds=seconds, writes=True))
        for name, flood in (("refused", self.flood), ("refused sessions", self.session_flood)):
            self._take(name, self.guarded.run(flood, seconds=seconds, refused=True))
        self._take("visitors", self._visitors())
        port, pause = self.guarded.service.port, self._pause("ours 1", 0.5)
        sends = load.sends(self.conversations)
        for name, run in (
            # As fast as responses arrive.
            ("flood", lambda: load.run_from(DIRECT_FLOOD, port, sends, 64, seconds + 2)),
            # At half the full load, ignoring Retry-After.
            (
                "proxied flood",
                lambda: load.run(
                    port, self.flood, connections=64, seconds=seconds + 2, delay_ms=pause
                ),
            ),
        ):
            with ThreadPoolExecutor(1) as pool:
                beside = pool.submit(run)
                time.sleep(0.5)
                self._take(f"visitors in a {name}", self._visitors())
                if beside.result().accepted:
                    raise RuntimeError("the flood was let through")

    def _visits(self) -> list[str]:
        return [
            request
            for number in range(ADDRESSES_EACH)
            for place, conversation in enumerate(self.conversations)
            for request in load.sends([conversation], address=f"10.0.{number}.{place}")
        ]

    def _visitors(self) -> Sample:
        seconds, pause = self.plan.seconds, self._pause("ours 1", 0.25)
        return self.guarded.run(self._visits(), seconds=seconds, delay_ms=pause, writes=True)

    def _connections(self) -> None:
        sends = load.sends(self.conversations)
        for count in self.plan.connections:
            for name, target in (("ours 2", self.two), ("plain 2", self.plain_two)):
                sample = target.run(
                    sends, connections=count, seconds=self.plan.seconds - 1, writes=True
                )
                self._take(f"{name} at {count}", sample)

    def _take(self, name: str, sample: Sample) -> None:
        self.samples[name].append(sample)
        _say(
            f"  {name:22} {sample.rate:8,.0f}/s  p50 {sample.p50 * 1e3:7.2f} ms  "
            f"p99 {sample.p99 * 1e3:7.2f} ms  application {sample.application:5.0f} us  "
            f"database {sample.database:5.0f} us"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
