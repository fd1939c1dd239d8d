"""Money for models: reserved, settled within the reservation, warned about, reported.

Fails with these defects planted in reserve_spend: a cap of 0 read as none, free models refused,
the clock read before the lock, months summed up to today only, the tenant not locked first,
incidents raised by every reservation; in settle_spend: settled twice, a cost above the
reservation, the newest day lowered; in spend.py: input of 0 believed, costs not cut.
"""

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
import pytest_asyncio
import uuid_utils
from hypothesis import given
from hypothesis import strategies as st

from administration import audit_of, lock_rows, wait_for_locks
from hlas import log
from hlas.agent import Usage
from hlas.agent.money import budgets, dollars, spend
from hlas.agent.money.spend import LARGEST_AMOUNT, BudgetUsedUp, Ledger, Payer, Reservation
from hlas.agent.providers.models import MILLION, Model
from hlas.agent.providers.prices import ListPrice, find_list_price
from hlas.errors import TenantNotFound, Unavailable
from hlas.observe import incidents
from hlas.observe.metrics import Metrics
from hlas.operators import administrators
from hlas.store.db import Confined, Database
from hlas.store.logins import TENANT_ADMIN, Logins
from hlas.tenants import tenants

# A nano-dollar for a token of input, two for one of output.
MODEL = Model("small", "https://models.example/v1", "small-1", "", MILLION, 2 * MILLION)
FREE = replace(MODEL, name="own", input_price=0, output_price=0)


@dataclass(frozen=True)
class Reported:
    """Tokens as a provider reports them."""

    input: int
    output: int


class Meter:
    """What was counted."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.incidents: list[str] = []

    def model_usage(self, input_tokens: int, output_tokens: int, cost: int) -> None:
        self.usage += Usage(input_tokens, output_tokens, cost)

    def incident(self, kind: str) -> None:
        self.incidents.append(kind)


@dataclass
class Purse:
    """A tenant that pays, and its ledger."""

    operators: Database
    ledger: Ledger
    meter: Meter
    payer: Payer

    async def reserve(self, amount: int, model: Model = MODEL, **changes: str) -> Reservation:
        """Reserve exactly this amount, all of it for input."""
        return await self.ledger.reserve(replace(self.payer, **changes), model, b"x" * amount, 0)

    async def refuse(self, amount: int, model: Model = MODEL, **changes: str) -> str:
        with pytest.raises(BudgetUsedUp) as refusal:
            await self.reserve(amount, model, **changes)
        return refusal.value.cap

    async def set_caps(self, **caps: int | None) -> None:
        await budgets.set_caps(self.operators, "shop", caps)  # type: ignore[arg-type]  # names of caps

    async def books(self) -> tuple[int, int]:
        """What is spent, and what the reservations add up to."""
        row = await self.operators.one(
            "select (select coalesce(sum(amount), 0)::bigint from spend) as spent,"
            " (select coalesce(sum(amount), 0)::bigint from reservations) as reserved"
        )
        assert row is not None
        return row["spent"], row["reserved"]


def make_id() -> str:
    return str(uuid_utils.uuid7())


@pytest_asyncio.fixture
async def purse(operators: Database) -> Purse:
    tenant = await tenants.add(operators, "Shop", "shop", [])
    meter = Meter()
    payer = Payer(str(tenant.id), make_id(), make_id())
    made = Purse(operators, Ledger(operators, meter), meter, payer)
    await made.set_caps(day=None, month=None, conversation=None)
    return made


@pytest_asyncio.fixture
async def confined(purse: Purse, database_url: str) -> AsyncIterator[Database]:
    """The database as an administrator of the tenant sees it."""
    opened = await Database.open(Logins(database_url), TENANT_ADMIN, statement_seconds=60)
    yield Confined(opened, purse.payer.tenant_id)
    await opened.close()


def read_incidents(logs: io.BytesIO) -> list[tuple[str, str, str]]:
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    return [
        (line["kind"], line["cap"], line["tenant_id"])
        for line in lines
        if line["event"] == "incident"
    ]


async def stored_incidents(operators: Database) -> list[tuple[str, int, dict[str, Any]]]:
    rows = await operators.all("select kind, count, details from incidents order by kind")
    return [(row["kind"], row["count"], row["details"]) for row in rows]


async def test_reserve_and_settle(purse: Purse) -> None:
    """The most a request can cost is reserved, its cost replaces it, tokens are counted."""
    held = await purse.ledger.reserve(purse.payer, MODEL, b"x" * 100, 50)
    assert held.amount == 100 + 2 * 50
    assert await purse.books() == (200, 200)
    usage = await purse.ledger.settle(held, MODEL, Reported(30, 10))
    assert usage == Usage(30, 10, 50) == purse.meter.usage
    assert await purse.books() == (50, 50)
    row = await purse.operators.one("select * from spend")
    assert row is not None
    assert (row["model"], row["requests"], row["input_tokens"], row["output_tokens"]) == (
        "small",
        1,
        30,
        10,
    )


async def test_release(purse: Purse) -> None:
    """A request that was provably not processed costs nothing; it was a request, though."""
    await purse.ledger.release(await purse.reserve(100))
    assert await purse.books() == (0, 0)
    row = await purse.operators.one("select requests, amount from spend")
    assert row is not None
    assert tuple(row) == (1, 0)


@pytest.mark.parametrize(
    "reported",
    [
        None,
        Reported(0, 0),
        Reported(0, 5),
        Reported(-1, 5),
        Reported(5, -1),
        Reported(-(10**30), -(10**30)),
    ],
)
async def test_incredible_usage(purse: Purse, reported: Reported | None) -> None:
    """Edge case 63: no usage, none of input or a negative one: the whole reservation counts."""
    held = await purse.ledger.reserve(purse.payer, MODEL, b"x" * 100, 50)
    assert await purse.ledger.settle(held, MODEL, reported) == Usage(0, 0, 200)
    assert await purse.books() == (200, 200)


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (Reported(10**30, 10), Usage(100, 10, 120)),
        (Reported(10, 10**30), Usage(10, 50, 110)),
        (Reported(10**30, 10**30), Usage(100, 50, 200)),
    ],
)
async def test_absurd_usage(purse: Purse, reported: Reported, usage: Usage) -> None:
    """Edge case 63: more tokens than the request can have had are cut to those that were held."""
    held = await purse.ledger.reserve(purse.payer, MODEL, b"x" * 100, 50)
    assert await purse.ledger.settle(held, MODEL, reported) == usage
    assert await purse.books() == (usage.cost, usage.cost)


async def test_the_database_keeps_the_bound(purse: Purse) -> None:
    """Edge case 63: the function itself settles from 0 to what was reserved, whoever calls it."""
    for cost, settled in ((10**18, 100), (-5, 0), (None, 100), (40, 40)):
        held = await purse.reserve(100)
        row = await purse.operators.one(
            "select settle_spend($1::text::uuid, $2::text::uuid, -7, -7, $3) as cost",
            purse.payer.tenant_id,
            held.id,
            cost,
        )
        assert row is not None
        assert row["cost"] == settled
    assert await purse.books() == (240, 240)
    [row] = await purse.operators.all("select input_tokens, output_tokens from spend")
    assert tuple(row) == (0, 0)


async def test_usage_twice(purse: Purse) -> None:
    """Edge case 63: the second settlement, or release, changes nothing, even at the same time."""
    held = await purse.reserve(100)
    row_lock = f"select from budgets where tenant_id = '{purse.payer.tenant_id}' for update"
    async with lock_rows(purse.operators, row_lock):
        both = [
            asyncio.create_task(purse.ledger.settle(held, MODEL, Reported(cost, 0)))
            for cost in (40, 40)
        ]
        await wait_for_locks(purse.operators, 2)
    assert sorted(usage.cost for usage in await asyncio.gather(*both)) == [0, 40]
    assert await purse.ledger.settle(held, MODEL, None) == Usage()
    await purse.ledger.release(held)
    assert await purse.books() == (40, 40)
    assert purse.meter.usage == Usage(40, 0, 40)


async def test_price_changes_in_mid_run(purse: Purse) -> None:
    """Edge case 63: the price in hand counts; not even a higher one exceeds the reservation."""
    for factor, cost in ((1, 40), (0, 0), (10**6, 100)):
        held = await purse.reserve(100)
        changed = replace(MODEL, input_price=MILLION * factor)
        assert (await purse.ledger.settle(held, changed, Reported(40, 0))).cost == cost
    assert await purse.books() == (140, 140)


async def test_foreign_reservation(purse: Purse) -> None:
    """A reservation is settled with its tenant only."""
    other = await tenants.add(purse.operators, "Other", "other", [])
    held = await purse.reserve(100)
    foreign = replace(held, tenant_id=str(other.id))
    assert await purse.ledger.settle(foreign, MODEL, Reported(1, 0)) == Usage()
    assert await purse.books() == (100, 100)


@pytest.mark.parametrize("cap", ["day", "month", "conversation"])
async def test_caps(purse: Purse, cap: str) -> None:
    """A cap may be reached and not exceeded, and what is settled lower may be spent again."""
    await purse.set_caps(**{cap: 1000})
    held = await purse.reserve(600)
    assert await purse.refuse(401) == cap
    await purse.reserve(400)
    assert await purse.refuse(1) == cap
    await purse.ledger.settle(held, MODEL, Reported(100, 0))
    assert await purse.refuse(501) == cap
    await purse.reserve(500)
    assert await purse.books() == (1000, 1000)


async def test_conversations_have_their_own_cap(purse: Purse) -> None:
    """What one conversation has used does not count in another."""
    await purse.set_caps(conversation=100)
    await purse.reserve(100)
    assert await purse.refuse(1) == "conversation"
    await purse.reserve(100, conversation_id=make_id())


async def test_tenants_have_their_own_caps(purse: Purse) -> None:
    """What one tenant has used does not count at another, not even in an equal conversation."""
    other = await tenants.add(purse.operators, "Other", "other", [])
    await purse.set_caps(day=100, conversation=100)
    await budgets.set_caps(purse.operators, "other", {"day": 100, "conversation": 100})
    await purse.reserve(100)
    await purse.reserve(100, tenant_id=str(other.id))
    assert await purse.refuse(1) == "day"


async def test_a_cap_of_nothing(purse: Purse) -> None:
    """A cap of 0 lets nothing be spent; null means no cap."""
    for cap in ("day", "month", "conversation"):
        await purse.set_caps(**{**dict.fromkeys(("day", "month", "conversation")), cap: 0})
        assert await purse.refuse(1) == cap
    await purse.set_caps(day=None, month=None, conversation=None)
    await purse.reserve(1)


async def test_free_models(purse: Purse) -> None:
    """A free model reserves nothing and is never refused; its requests and tokens are counted."""
    await purse.reserve(100)
    await purse.set_caps(day=0, month=0, conversation=0)
    held = await purse.reserve(100, FREE)
    assert held.amount == 0
    assert await purse.ledger.settle(held, FREE, Reported(70, 0)) == Usage(70, 0, 0)
    row = await purse.operators.one("select * from spend where model = 'own'")
    assert row is not None
    assert (row["requests"], row["input_tokens"], row["amount"]) == (1, 70, 0)
    assert purse.meter.incidents == []


async def test_absurd_prices(purse: Purse) -> None:
    """An amount that no integer of the database holds is refused, with caps and without."""
    absurd = replace(MODEL, input_price=LARGEST_AMOUNT)
    assert await purse.refuse(2 * 10**6, absurd) == "day"
    await purse.set_caps(day=10**18, month=10**18)
    dear = replace(MODEL, input_price=10**18)
    await purse.reserve(900_000, dear)
    assert await purse.refuse(2 * 10**6, absurd) == "day"
    assert await purse.refuse(200_000, dear) == "day"
    assert await purse.books() == (9 * 10**17, 9 * 10**17)


async def test_a_tenant_that_is_gone(purse: Purse) -> None:
    """Without a tenant there is no budget: refused, and its reservations settle to nothing."""
    held = await purse.reserve(100)
    await tenants.remove(purse.operators, "shop")
    assert await purse.refuse(1) == "tenant"
    assert await purse.refuse(1, FREE) == "tenant"
    assert await purse.ledger.settle(held, MODEL, None) == Usage()


async def test_removal_of_a_tenant_meanwhile(purse: Purse, locker: asyncpg.Connection) -> None:
    """A reservation and the removal of its tenant lock in one order: no deadlock."""
    # The reservation has its locks, and waits for the table before its foreign keys are checked.
    await locker.execute("lock table reservations in access exclusive mode")
    reserving = asyncio.create_task(purse.reserve(1))
    await wait_for_locks(purse.operators, 1)
    removal = asyncio.create_task(tenants.remove(purse.operators, "shop"))
    await wait_for_locks(purse.operators, 2)
    await locker.execute("commit")
    held = await reserving
    await removal
    assert await purse.ledger.settle(held, MODEL, None) == Usage()


async def test_a_tenant_that_is_locked(purse: Purse, locker: asyncpg.Connection) -> None:
    """While a tenant is being removed, its requests for money give up within seconds.

    The connections for money are few, and shared by all tenants.
    """
    held = await purse.reserve(100)
    await locker.execute("select from tenants for update")
    await locker.execute("select from budgets for update")
    for attempt in (purse.reserve(1), purse.ledger.settle(held, MODEL, None)):
        with pytest.raises(Unavailable) as caught:
            await attempt
        assert isinstance(caught.value.__cause__, asyncpg.LockNotAvailableError)
    await locker.execute("commit")
    assert await purse.ledger.settle(held, MODEL, None) == Usage(cost=100)


async def test_day_and_month_roll_over(purse: Purse) -> None:
    """Edge case 62: yesterday does not count today, nor last month in this one.

    Rows are moved instead of the clock, which is the database's.
    """
    await purse.set_caps(day=100, month=150)
    await purse.reserve(100)
    assert await purse.refuse(1) == "day"
    [budget] = await budgets.list_budgets(purse.operators, "shop")
    first = budget.today.replace(day=1)
    end = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    # A day of the same month after today, where there is one: the clock may have been set back.
    other = end if budget.today != end else first
    await purse.operators.execute("update spend set day = $1", other)
    await purse.operators.execute("update reservations set day = $1", other)
    assert await purse.refuse(51) == "month"
    held = await purse.reserve(50)
    assert await purse.refuse(1) == "month"
    last = first - timedelta(days=1)
    await purse.operators.execute("update spend set day = $2 where day = $1", other, last)
    await purse.operators.execute("update reservations set day = $2 where day = $1", other, last)
    await purse.reserve(50)
    assert await purse.refuse(1) == "day"
    await purse.ledger.settle(held, MODEL, Reported(10, 0))
    assert await purse.books() == (160, 160)


async def test_the_clock_is_read_under_the_lock(purse: Purse, locker: asyncpg.Connection) -> None:
    """Edge case 62: who waits for the lock over midnight pays on the new day.

    The function reads the clock after the lock: what was stored while it waited counts.
    """
    source = await purse.operators.one("select prosrc from pg_proc where proname = 'reserve_spend'")
    assert source is not None
    lock, clock = (source["prosrc"].index(part) for part in ("for update", "clock_timestamp()"))
    assert lock < clock
    await purse.set_caps(day=100)
    await locker.execute("select from budgets for update")
    waiting = asyncio.create_task(purse.refuse(1))
    await wait_for_locks(purse.operators, 1)
    await locker.execute(
        "insert into spend (tenant_id, day, model, amount)"
        " values ($1, (clock_timestamp() at time zone 'UTC')::date, 'x', 100)",
        purse.payer.tenant_id,
    )
    await locker.execute("commit")
    assert await waiting == "day"


async def test_late_settlement_stays_on_its_day(purse: Purse) -> None:
    """A reservation of yesterday is settled there, and does not lower what today has used."""
    held = await purse.reserve(100)
    await purse.operators.execute("update spend set day = day - 1")
    await purse.operators.execute("update reservations set day = day - 1")
    await purse.reserve(7)
    await purse.ledger.settle(held, MODEL, Reported(10, 0))
    rows = await purse.operators.all("select amount from spend order by day")
    assert [row["amount"] for row in rows] == [10, 7]


async def test_warnings(purse: Purse, logs: io.BytesIO) -> None:
    """At 80 % and at 100 % of a cap: one incident, log line and count for a day and cap."""
    await purse.set_caps(day=1000, month=2000)
    await purse.reserve(799)
    assert purse.meter.incidents == []
    held = await purse.reserve(1)
    assert purse.meter.incidents == ["budget_80"]
    await purse.ledger.settle(held, MODEL, Reported(1, 0))
    await purse.reserve(10)
    assert await purse.refuse(1000) == "day"
    assert await purse.refuse(1000) == "day"
    assert purse.meter.incidents == ["budget_80", "budget_100"]
    used = {"used_usd": 8e-07, "cap_usd": 1e-06}
    full = {"used_usd": 8.1e-07, "cap_usd": 1e-06}
    assert await stored_incidents(purse.operators) == [
        ("budget_100", 1, {"day": full}),
        ("budget_80", 1, {"day": used}),
    ]
    # The cap of the month is another one, on the same day.
    await purse.set_caps(day=None, month=1000)
    await purse.reserve(1)
    assert purse.meter.incidents == ["budget_80", "budget_100", "budget_80"]
    [_, (_, count, details)] = await stored_incidents(purse.operators)
    assert (count, set(details)) == (2, {"day", "month"})
    tenant_id = purse.payer.tenant_id
    assert read_incidents(logs) == [
        ("budget_80", "day", tenant_id),
        ("budget_100", "day", tenant_id),
        ("budget_80", "month", tenant_id),
    ]


async def test_a_cap_that_is_reached_exactly(purse: Purse) -> None:
    """The last nano-dollar is a warning of 100 %, without one of 80 % that would say the same."""
    await purse.set_caps(day=1000)
    await purse.reserve(1000)
    assert purse.meter.incidents == ["budget_100"]


async def test_warnings_of_the_next_day(purse: Purse) -> None:
    """A new day has new incidents."""
    await purse.set_caps(day=1000)
    assert await purse.refuse(1001) == "day"
    await purse.operators.execute("update incidents set started_at = started_at - interval '1 day'")
    assert await purse.refuse(1001) == "day"
    assert purse.meter.incidents == ["budget_100", "budget_100"]


async def test_a_conversation_at_its_cap_is_no_incident(purse: Purse) -> None:
    """The cap of a conversation stops one visitor; it is not the owner's concern."""
    await purse.set_caps(conversation=0)
    assert await purse.refuse(1) == "conversation"
    assert await stored_incidents(purse.operators) == []


async def test_incidents_are_listed_in_order(purse: Purse) -> None:
    """Incidents of money are in order of time among the others, whose ids are UUIDv7."""
    await purse.set_caps(day=1000)

    async def add_other(kind: str) -> None:
        await purse.operators.execute(
            "insert into incidents (tenant_id, id, kind) values ($1, $2, $3)",
            purse.payer.tenant_id,
            make_id(),
            kind,
        )
        # Ids of one millisecond are in no order.
        await asyncio.sleep(0.005)

    await add_other("first")
    await purse.reserve(800)
    await asyncio.sleep(0.005)
    await add_other("last")
    found, _ = await incidents.list_incidents(purse.operators)
    assert [one.kind for one in found] == ["last", "budget_80", "first"]


async def test_metrics(purse: Purse) -> None:
    """Tokens and cost are counted once they are settled, and every series exists before."""
    metrics = Metrics()
    assert metrics.registry.get_sample_value("hlas_incidents_total", {"kind": "budget_80"}) == 0
    ledger = Ledger(purse.operators, metrics)
    held = await ledger.reserve(purse.payer, MODEL, b"x" * 100, 50)
    assert metrics.registry.get_sample_value("hlas_model_cost_usd_total") == 0
    for _ in range(2):
        await ledger.settle(held, MODEL, Reported(30, 10))
    value = metrics.registry.get_sample_value
    assert value("hlas_model_tokens_total", {"kind": "input"}) == 30
    assert value("hlas_model_tokens_total", {"kind": "output"}) == 10
    assert value("hlas_model_cost_usd_total") == pytest.approx(50e-9)


async def test_old_reservations_are_forgotten(
    purse: Purse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 40 days reservations are deleted in batches, settled or not; the spend stays."""
    monkeypatch.setattr(spend, "FORGET_ROWS", 2)
    await purse.reserve(1)

    async def age(days: float) -> None:
        moment = datetime.now(UTC) - timedelta(days=days)
        old = f"{int(moment.timestamp() * 1000):012x}7{make_id().replace('-', '')[13:]}"
        held = await purse.reserve(10)
        await purse.operators.execute(
            "update reservations set id = $2, is_settled = $3 where id = $1",
            held.id,
            UUID(old),
            days % 2 == 0,
        )

    for days in (39.9, 40.1, 41, 42, 400, 401):
        await age(days)
    assert await spend.forget_reservations(purse.operators) == 5
    rows = await purse.operators.all("select amount from reservations order by amount")
    assert [row["amount"] for row in rows] == [1, 10]
    assert (await purse.books())[0] == 61


async def test_caps_are_audited(purse: Purse) -> None:
    """Each change of caps is one event with what it changed, in dollars; none for no change."""
    await purse.set_caps(day=5_500_000_000)
    await purse.set_caps(day=5_500_000_000, month=None)
    row = await purse.operators.one("select * from events order by id desc limit 1")
    assert row is not None
    assert (row["action"], row["target"], row["before"], row["after"]) == (
        "caps.update",
        "shop",
        {"day": None},
        {"day": "5.5"},
    )
    assert [event[1] for event in await audit_of(purse.operators)] == [
        "tenant.add",
        "caps.update",
        "caps.update",
    ]
    with pytest.raises(TenantNotFound):
        await budgets.set_caps(purse.operators, "nobody", {"day": 1})


async def test_reports(purse: Purse) -> None:
    """Spend by day and model, month to date, caps and their share; without other tenants'."""
    other = await tenants.add(purse.operators, "Other", "other", [])
    await purse.set_caps(day=200, month=1000)
    held = await purse.reserve(100)
    await purse.ledger.settle(held, MODEL, Reported(60, 0))
    await purse.reserve(5, FREE)
    await purse.reserve(150, tenant_id=str(other.id))
    await purse.operators.execute(
        "insert into spend (tenant_id, day, model, amount)"
        " select $1::text::uuid, (clock_timestamp() at time zone 'UTC')::date - 29, 'old', 9"
        " union all select $1::text::uuid,"
        " (clock_timestamp() at time zone 'UTC')::date - 30, 'older', 9",
        purse.payer.tenant_id,
    )
    theirs, ours = await budgets.list_budgets(purse.operators)
    assert (theirs.slug, theirs.used_today, theirs.share) == ("other", 150, 0)
    assert (ours.slug, ours.used_today, ours.share_of_day, ours.share) == ("shop", 60, 30, 30)
    assert ours.caps == budgets.Caps(200, 1000, None)
    rows = await spend.list_spend(purse.operators, ours.tenant_id, 30)
    assert [(row.model, row.requests, row.input_tokens, row.cost) for row in rows] == [
        ("small", 1, 60, 60),
        ("own", 1, 0, 0),
        ("old", 0, 0, 9),
    ]
    with pytest.raises(TenantNotFound):
        await budgets.list_budgets(purse.operators, "nobody")


async def test_a_tenants_administrator(purse: Purse, confined: Database) -> None:
    """A tenant's own role reads its spend and caps, not others'; it can change neither."""
    await tenants.add(purse.operators, "Other", "other", [])
    await administrators.add(purse.operators, "Ada", "shop")
    await purse.reserve(100)
    [budget] = await budgets.list_budgets(confined)
    assert (budget.slug, budget.used_today) == ("shop", 100)
    assert len(await spend.list_spend(confined, budget.tenant_id, 30)) == 1
    with pytest.raises(TenantNotFound):
        await budgets.list_budgets(confined, "other")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await budgets.set_caps(confined, "shop", {"day": None})
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await Ledger(confined, purse.meter).reserve(purse.payer, MODEL, b"x", 0)
    for statement in ("delete from spend", "select from reservations", "update spend set amount=0"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await confined.execute(statement)


def test_share() -> None:
    """Shares are rounded down; a cap of 0 is used up, and no cap has no share."""
    assert [budgets.share(used, 1000) for used in (0, 9, 799, 800, 999, 1000, 5000)] == [
        *(0, 0, 79, 80, 99, 100, 500),
    ]
    assert budgets.share(0, 0) == 100
    assert budgets.share(5, None) is None


PRICES = st.integers(0, 10**15)
TOKENS = st.one_of(st.integers(-5, 10**6), st.integers(-(10**40), 10**40))


@given(PRICES, PRICES, st.integers(1, 10**6), st.integers(0, 10**5), TOKENS, TOKENS)
def test_settled_within_the_reservation(
    input_price: int, output_price: int, size: int, max_tokens: int, given_in: int, given_out: int
) -> None:
    """Edge case 63: for any price and any report the cost is from 0 to what was reserved.

    It is exact, rounded up, where the report is credible.
    """
    model = replace(MODEL, input_price=input_price, output_price=output_price)
    amount = model.price(size, max_tokens)
    held = Reservation("r", "t", amount, size, max_tokens)
    usage = held.price(model, Reported(given_in, given_out))
    assert 0 <= usage.cost <= amount
    assert 0 <= usage.input_tokens <= size
    assert 0 <= usage.output_tokens <= max_tokens
    assert held.price(model, None) == Usage(cost=amount)
    if 0 < given_in <= size and 0 <= given_out <= max_tokens:
        exact = given_in * input_price + given_out * output_price
        assert exact <= usage.cost * MILLION < exact + MILLION


@given(st.integers(0, 10**18 - 1))
def test_dollars_are_exact(nano: int) -> None:
    """Every amount below a billion dollars is shown and read back without loss."""
    assert dollars.parse(dollars.show(nano)) == nano


def test_dollars() -> None:
    """Dollars have at most 9 decimals; anything else is refused, never rounded."""
    assert dollars.parse("0.000000001") == 1
    assert dollars.parse("12.50") == 12_500_000_000
    assert dollars.parse("0007") == 7_000_000_000
    assert (dollars.show(0), dollars.show(10_000_000_000)) == ("0", "10")
    for text in (
        "",
        "-1",
        "+1",
        "1e3",
        "0.0000000001",
        "1,5",
        ".5",
        "5.",
        "NaN",
        "٣",
        "1_0",
        "5\n",
    ):
        with pytest.raises(ValueError, match="write US dollars"):
            dollars.parse(text)
    with pytest.raises(ValueError, match="write US dollars"):
        dollars.parse("9" * 10)


def test_dollars_for_people() -> None:
    """Cents, more decimals for small amounts, and nothing that was spent is shown as 0."""
    shown = [dollars.describe(nano) for nano in (0, 1, 123_456_789, 500_000_000, 1234_567_000_000)]
    assert shown == ["$0.00", "under $0.0001", "$0.1235", "$0.50", "$1,234.57"]


def test_list_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The price at the provider of the address, of the highest tier; unknown ones are None.

    Nothing is downloaded.
    """

    def refuse(*_: object) -> None:
        raise AssertionError("no connection may be made")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    openai = "https://api.openai.com/v1"
    assert find_list_price(openai, "gpt-4o") == ListPrice(2_500_000_000, 10_000_000_000)
    google = "https://generativelanguage.googleapis.com/v1beta/openai"
    # 1.25 and 10 dollars for prompts of at most 200 000 tokens, 2.5 and 15 above.
    assert find_list_price(google, "gemini-2.5-pro") == ListPrice(2_500_000_000, 15_000_000_000)
    for address, model in (
        ("http://127.0.0.1:11434/v1", "gpt-4o"),
        (openai, "no-such-model"),
        (openai, ""),
        ("", "gpt-4o"),
        # These have no output, or a price for each request.
        (openai, "text-embedding-3-small"),
        ("https://api.perplexity.ai", "sonar"),
    ):
        assert find_list_price(address, model) is None, (address, model)
