"""What a tenant may spend on models: caps, and how much of them is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, Self, TypeAlias
from uuid import UUID

from hlas.agent.money import dollars
from hlas.errors import TenantNotFound
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

CapName: TypeAlias = Literal["day", "month", "conversation"]
# Percent of a cap at which its owner is warned, and at which the model stops.
NEARLY, USED_UP = 80, 100


@dataclass(frozen=True, slots=True)
class Caps:
    """In nano-dollars; None means no cap, 0 lets nothing be spent.

    A new tenant has the defaults of the table (store/migrations/versions/0009_agent.py).
    """

    day: int | None
    month: int | None
    conversation: int | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["cap_day"], row["cap_month"], row["cap_conversation"])

    def by_name(self) -> dict[CapName, int | None]:
        return {"day": self.day, "month": self.month, "conversation": self.conversation}


@dataclass(frozen=True, slots=True)
class Budget:
    """A tenant's caps and what is used of them, by the database's clock in UTC."""

    tenant_id: UUID
    slug: str
    name: str
    today: date
    caps: Caps
    used_today: int
    used_this_month: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            tenant_id=UUID(str(row["tenant_id"])),
            slug=row["slug"],
            name=row["name"],
            today=row["today"],
            caps=Caps.from_row(row),
            used_today=row["used_today"],
            used_this_month=row["used_this_month"],
        )

    @property
    def share_of_day(self) -> int | None:
        return share(self.used_today, self.caps.day)

    @property
    def share_of_month(self) -> int | None:
        return share(self.used_this_month, self.caps.month)

    @property
    def share(self) -> int | None:
        """The percentage of the cap that is used most; None without a cap."""
        shares = [one for one in (self.share_of_day, self.share_of_month) if one is not None]
        return max(shares, default=None)


def share(used: int, cap: int | None) -> int | None:
    """How many percent of a cap are used, rounded down, so that 100 is never said too early."""
    if cap is None:
        return None
    return used * 100 // cap if cap else USED_UP


async def list_budgets(database: Database, slug: str | None = None) -> list[Budget]:
    """Of all tenants by slug, or of one."""
    rows = await database.all(queries.list_budgets, slug)
    if slug is not None and not rows:
        raise _unknown(slug)
    return [Budget.from_row(row) for row in rows]


async def set_caps(
    operators: Database,
    slug: str,
    changes: Mapping[CapName, int | None],
    change: Change = COMMAND_LINE,
) -> Caps:
    """Set some of a tenant's caps, in nano-dollars; None: no cap. Only operators have the right.

    Takes the lock of reservations: each of them sees either all of these caps or none.
    """
    async with operators.transaction() as connection:
        row = await connection.fetchrow(queries.lock_caps, slug)
        if row is None:
            raise _unknown(slug)
        before = Caps.from_row(row).by_name()
        after = {**before, **changes}
        changed = [name for name in after if after[name] != before[name]]
        if changed:
            await connection.execute(queries.set_caps, row["tenant_id"], *after.values())
            await record(
                connection,
                change,
                UUID(str(row["tenant_id"])),
                "caps.update",
                slug,
                {name: show_cap(before[name]) for name in changed},
                {name: show_cap(after[name]) for name in changed},
            )
        return Caps(after["day"], after["month"], after["conversation"])


def show_cap(cap: int | None) -> str | None:
    """In dollars, exactly."""
    return None if cap is None else dollars.show(cap)


def _unknown(slug: str) -> TenantNotFound:
    return TenantNotFound(f"there is no tenant {slug!r}; `hlas tenant list` shows all")
