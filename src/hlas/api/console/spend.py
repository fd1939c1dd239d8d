"""What a tenant spends on models: the last 30 days, and its caps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

from fastapi import Response
from pydantic import ValidationError

from hlas.agent.money import budgets, dollars, spend
from hlas.agent.money.budgets import NEARLY, USED_UP, Budget, show_cap
from hlas.agent.money.spend import Spend
from hlas.api.admin.spend import NewCaps
from hlas.api.console.access import (
    CONSOLE,
    Form,
    Operator,
    PathTenant,
    Sent,
    Signed,
    Visit,
    explain,
    go,
    router,
)
from hlas.api.console.plots import Plot, draw_columns
from hlas.tenants.tenants import Tenant

DAYS = 30
TITLE = f"Last {DAYS} days"
# The most expensive models have a colour of their own, the others share the last one.
TONES = ("one", "two", "four", "five", "three")
OTHERS = "six"


@dataclass(frozen=True, slots=True)
class CapUse:
    """A cap, and how much of it is used."""

    title: str
    # Whose cap it is, in a sentence.
    owner: str
    until: str
    used: int
    cap: int | None
    share: int | None

    @property
    def warning(self) -> str:
        if self.share is None or self.share < NEARLY:
            return ""
        if self.share < USED_UP:
            return f"{self.title}: {self.share} % of the cap is used."
        return f"{self.owner} cap is used up. Answers come from the knowledge until {self.until}."


@dataclass(slots=True)
class ModelSum:
    """What one model cost in the last days."""

    name: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0


@router.get("/tenants/{slug}/spend")
async def read_spend(visit: Signed, tenant: PathTenant) -> Response:
    return await _spend_page(visit, tenant)


@router.post("/tenants/{slug}/spend")
async def set_caps(visit: Operator, tenant: PathTenant, form: Sent) -> Response:
    """An empty field means no cap."""
    given = {name: form.get(name, "").strip() or None for name in ("day", "month", "conversation")}
    try:
        new = NewCaps.model_validate(given)
    except ValidationError as error:
        return await _spend_page(visit, tenant, 422, form, explain(error))
    await budgets.set_caps(visit.database, tenant.slug, new.parse(), visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/spend", "saved")


async def _spend_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    [budget] = await budgets.list_budgets(visit.database, tenant.slug)
    rows = await spend.list_spend(visit.database, tenant.id, DAYS)
    stored = {name: show_cap(cap) or "" for name, cap in budget.caps.by_name().items()}
    return visit.page(
        "spend.html",
        status,
        tenant=tenant,
        uses=list_uses(budget),
        conversation=budget.caps.conversation,
        plot=draw_days(rows, budget.today),
        models=sum_by_model(rows),
        form=stored if form is None else form,
        problems=problems or {},
    )


def list_uses(budget: Budget) -> list[CapUse]:
    return [
        CapUse(
            title="Today",
            owner="Today's",
            until="midnight UTC",
            used=budget.used_today,
            cap=budget.caps.day,
            share=budget.share_of_day,
        ),
        CapUse(
            title="This month",
            owner="This month's",
            until="the first of next month, UTC",
            used=budget.used_this_month,
            cap=budget.caps.month,
            share=budget.share_of_month,
        ),
    ]


def sum_by_model(rows: Sequence[Spend]) -> list[ModelSum]:
    """The most expensive one first."""
    found: dict[str, ModelSum] = {}
    for row in rows:
        one = found.setdefault(row.model, ModelSum(row.model))
        one.requests += row.requests
        one.input_tokens += row.input_tokens
        one.output_tokens += row.output_tokens
        one.cost += row.cost
    return sorted(found.values(), key=lambda one: (-one.cost, one.name))


def draw_days(rows: Sequence[Spend], today: date) -> Plot:
    """A column for each of the last days, with a part for each model, in dollars."""
    days = [today - timedelta(days=DAYS - 1 - number) for number in range(DAYS)]
    models = [one.name for one in sum_by_model(rows)]
    groups = [(model, tone, {model}) for model, tone in zip(models, TONES, strict=False)]
    rest = set(models[len(TONES) :])
    if rest:
        groups.append(("Others", OTHERS, rest))
    series: list[tuple[str, str, list[float | None]]] = [
        (name, tone, [_sum_dollars(rows, day, wanted) for day in days])
        for name, tone, wanted in groups or [(TITLE, "one", set())]
    ]
    starts = [datetime.combine(day, time(), UTC) for day in days]
    return replace(
        draw_columns(TITLE, starts, series),
        headline=dollars.describe(sum(row.cost for row in rows)),
        unit=" USD",
        form="day",
    )


def _sum_dollars(rows: Sequence[Spend], day: date, models: set[str]) -> float | None:
    """Only for drawing: sums of money are integers everywhere else."""
    return sum(row.cost for row in rows if row.day == day and row.model in models) / dollars.NANO
