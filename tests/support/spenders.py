"""A process whose runs reserve and settle money, for tests of races: `spenders.py URL TENANT SEED`.

Each line of its output is an outcome, so that a test sees what a killed process did.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uuid_utils

from hlas.agent.money.spend import BudgetUsedUp, Ledger, Payer
from hlas.agent.providers.models import MILLION, Model
from hlas.errors import Unavailable
from hlas.observe.metrics import Metrics
from hlas.store.db import Database
from hlas.store.logins import OPERATOR, Logins

RUNS = 32
REQUESTS = 20
LARGEST = 400
NEVER_SETTLED = 0.05

# A nano-dollar for a token.
MODEL = Model("small", "https://models.example/v1", "small-1", "", MILLION, MILLION)


@dataclass(frozen=True)
class Reported:
    input: int
    output: int


async def run(
    ledger: Ledger, tenant_id: str, chance: random.Random, report: Callable[[str], None]
) -> None:
    """One run: some requests, one after the other; most of them cost much less than they could."""
    payer = Payer(tenant_id, str(uuid_utils.uuid7()), str(uuid_utils.uuid7()))
    for _ in range(REQUESTS):
        size, tokens = chance.randint(1, LARGEST // 2), chance.randint(0, LARGEST // 2)
        try:
            held = await ledger.reserve(payer, MODEL, b"x" * size, tokens)
            await asyncio.sleep(chance.random() / 100)
            if chance.random() < NEVER_SETTLED:
                report("lost")
                continue
            await ledger.settle(held, MODEL, Reported(min(size, chance.randint(1, 5)), 0))
            report("settled")
        except BudgetUsedUp as refusal:
            report(refusal.cap)
        except Unavailable:
            # No connection in time on a busy machine: what was reserved is lost, too.
            report("unavailable")


async def spend(
    database_url: str,
    tenant_id: str,
    seed: int,
    report: Callable[[str], None],
) -> None:
    """Runs at the same time, each with a connection of its own."""
    chance = random.Random(seed)
    operators = await Database.open(Logins(database_url), OPERATOR, size=RUNS, statement_seconds=60)
    ledger = Ledger(operators, Metrics())
    try:
        await asyncio.gather(*(run(ledger, tenant_id, chance, report) for _ in range(RUNS)))
    finally:
        await operators.close()


@asynccontextmanager
async def start_process(
    database_url: str, tenant_id: str, seed: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The same in another process, which starts when it gets a line, and is ready to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(__file__, database_url, tenant_id, str(seed)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def main(database_url: str, tenant_id: str, seed: str) -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await spend(database_url, tenant_id, int(seed), lambda outcome: print(outcome, flush=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
