"""Money for models: reserved before a request, settled after it. Amounts are in nano-dollars."""

import asyncio
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol, Self, TypeAlias
from uuid import UUID

import uuid_utils

from hlas import log
from hlas.agent import Usage
from hlas.agent.providers.models import Model
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

# The largest bigint; a cap is always lower, so an absurd price is refused.
LARGEST_AMOUNT = 2**63 - 1
# `spend` keeps the sums of days and months. The cap of a conversation is the sum of its
# reservations, so it counts those of the last 40 days.
FORGET_DAYS = 40
FORGET_ROWS = 1000
FORGET_SECONDS = 3600.0

# The cap that is used up; "tenant": the tenant was removed meanwhile.
Cap: TypeAlias = Literal["day", "month", "conversation", "tenant"]


class Tokens(Protocol):
    """Tokens of one request, as the provider reported them."""

    @property
    def input(self) -> int: ...

    @property
    def output(self) -> int: ...


class Meter(Protocol):
    """Counts what is spent, and incidents."""

    def model_usage(self, input_tokens: int, output_tokens: int, cost: int) -> None: ...

    def incident(self, kind: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose money is spent, and for what."""

    tenant_id: str
    conversation_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """An upper bound of what one request costs, and of the tokens it can use."""

    id: str
    tenant_id: str
    amount: int
    most_input_tokens: int
    most_output_tokens: int

    def price(self, model: Model, tokens: Tokens | None) -> Usage:
        """What the request cost: at most what was reserved, whatever the provider reports.

        Without a credible report the whole reservation counts. A request always has input, so a
        report of none is not credible.
        """
        if tokens is None or tokens.input <= 0 or tokens.output < 0:
            return Usage(cost=self.amount)
        used = (
            min(tokens.input, self.most_input_tokens),
            min(tokens.output, self.most_output_tokens),
        )
        return Usage(*used, cost=min(model.price(*used), self.amount))


@dataclass(frozen=True, slots=True)
class Spend:
    """What a tenant spent with one model on one day in UTC."""

    day: date
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            day=row["day"],
            model=row["model"],
            requests=row["requests"],
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cost=row["amount"],
        )


class BudgetUsedUp(Exception):
    """The request could exceed a cap."""

    def __init__(self, cap: Cap) -> None:
        super().__init__(cap)
        self.cap = cap


class Ledger:
    """Reserves and settles money of every tenant; one for each worker."""

    def __init__(self, operators: Database, meter: Meter) -> None:
        self._operators = operators
        self._meter = meter

    async def reserve(
        self, payer: Payer, model: Model, body: bytes, max_tokens: int
    ) -> Reservation:
        """Reserve the most that a request can cost; raises BudgetUsedUp. Call it before sending.

        A body has at least as many bytes as its text has tokens: it is text only, without images,
        and no token stands for less than a byte. What chat templates add is less than what JSON
        adds: a few tokens around a message, where `{"role":"user","content":""},` has 29 bytes, and
        a preamble of some hundred tokens for tools, whose schemas, like our instructions, have 3 to
        4 bytes for a token.
        """
        amount = min(model.price(len(body), max_tokens), LARGEST_AMOUNT)
        reservation = Reservation(
            str(uuid_utils.uuid7()), payer.tenant_id, amount, len(body), max_tokens
        )
        row = await self._operators.one(
            queries.reserve,
            payer.tenant_id,
            reservation.id,
            payer.conversation_id,
            payer.run_id,
            model.name,
            amount,
        )
        assert row is not None
        for cap, kind in (("day", row["warning_day"]), ("month", row["warning_month"])):
            if kind is not None:
                log.warning("incident", kind=kind, cap=cap, tenant_id=payer.tenant_id)
                self._meter.incident(kind)
        if row["refused_by"] is not None:
            raise BudgetUsedUp(row["refused_by"])
        return reservation

    async def settle(self, reservation: Reservation, model: Model, tokens: Tokens | None) -> Usage:
        """Replace a reservation by the cost; None: the provider did not report tokens.

        `model` is the one the reservation was made with, so that a price that changes meanwhile
        does not matter. The second time nothing changes, and nothing is added to the usage.
        """
        usage = reservation.price(model, tokens)
        return usage if await self._settle(reservation, usage) else Usage()

    async def release(self, reservation: Reservation) -> None:
        """Give a reservation back: the provider has provably not processed the request."""
        await self._settle(reservation, Usage())
        await self._operators.execute(queries.mark_released, reservation.tenant_id, reservation.id)

    async def _settle(self, reservation: Reservation, usage: Usage) -> bool:
        row = await self._operators.one(
            queries.settle,
            reservation.tenant_id,
            reservation.id,
            usage.input_tokens,
            usage.output_tokens,
            usage.cost,
        )
        is_first = row is not None and row["cost"] is not None
        if is_first:
            self._meter.model_usage(usage.input_tokens, usage.output_tokens, usage.cost)
        return is_first


async def list_spend(database: Database, tenant_id: UUID, days: int) -> list[Spend]:
    """By day, newest first, and model; today by the database's clock is one of the days."""
    return [Spend.from_row(row) for row in await database.all(queries.list_spend, tenant_id, days)]


async def forget_reservations(operators: Database, *, pause: float = 0.0) -> int:
    """Delete old reservations, with a pause after each batch; returns how many."""
    forgotten = 0
    while True:
        status = await operators.execute(queries.forget_reservations, FORGET_DAYS, FORGET_ROWS)
        batch = int(status.rpartition(" ")[2])
        if not batch:
            return forgotten
        forgotten += batch
        await asyncio.sleep(pause)
