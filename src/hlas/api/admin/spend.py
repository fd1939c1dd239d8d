"""What a tenant spends on models, and its caps. Amounts are strings, exact in US dollars."""

from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated

from fastapi import Depends, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from hlas.agent.money import budgets, dollars, spend
from hlas.agent.money.budgets import CapName, Caps, show_cap
from hlas.agent.money.spend import Spend
from hlas.api.admin.access import (
    Admin,
    Operator,
    Parameters,
    PathTenant,
    answer,
    read_body,
    router,
)
from hlas.api.documentation import problems, takes

MOST_DAYS = 366


def _check_dollars(text: str) -> str:
    try:
        dollars.parse(text)
    except ValueError:
        raise PydanticCustomError("invalid_dollars", "invalid amount of dollars") from None
    return text


# Text, because a JSON number is read as a float, which is not exact.
Cap = (
    Annotated[
        str,
        Field(max_length=19, json_schema_extra={"pattern": dollars.PATTERN}),
        AfterValidator(_check_dollars),
    ]
    | None
)


class NewCaps(BaseModel):
    """All three, so that a cap is not lifted by being forgotten."""

    model_config = ConfigDict(extra="forbid", strict=True)

    day: Cap = Field(description='US dollars such as "5.50"; null: no cap; "0": nothing')
    month: Cap
    conversation: Cap

    def parse(self) -> dict[CapName, int | None]:
        given: dict[CapName, str | None] = {
            "day": self.day,
            "month": self.month,
            "conversation": self.conversation,
        }
        return {name: None if text is None else dollars.parse(text) for name, text in given.items()}


class CapsAnswer(BaseModel):
    day: str | None = Field(description="US dollars; null: no cap")
    month: str | None
    conversation: str | None


class Use(BaseModel):
    cost_usd: str = Field(description="reservations of requests under way included")
    share_percent: int | None = Field(description="of the cap; null: no cap")


class Total(BaseModel):
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: str


class DayTotal(Total):
    day: date = Field(description="in UTC")


class ModelTotal(Total):
    model: str


class SpendAnswer(BaseModel):
    today: Use
    month: Use = Field(description="from the first day of the month in UTC")
    caps: CapsAnswer
    days: list[DayTotal] = Field(description="newest first, without days of no request")
    models: list[ModelTotal] = Field(description="over the same days, most expensive first")


class SpendQuery(Parameters):
    days: int = Field(30, ge=1, le=MOST_DAYS, description="how many days, today included")


@router.get(
    "/tenants/{slug}/spend",
    response_model=SpendAnswer,
    summary="Read what a tenant spends on models",
    responses=problems(404, 422),
)
async def read_spend(
    access: Admin, tenant: PathTenant, query: Annotated[SpendQuery, Query()]
) -> Response:
    [budget] = await budgets.list_budgets(access.database, tenant.slug)
    rows = await spend.list_spend(access.database, tenant.id, query.days)
    models = _sum_up(rows, lambda row: row.model)
    return answer(
        {
            "today": _describe_use(budget.used_today, budget.share_of_day),
            "month": _describe_use(budget.used_this_month, budget.share_of_month),
            "caps": _describe_caps(budget.caps),
            "days": [
                {"day": day, **_describe_total(parts)}
                for day, parts in _sum_up(rows, lambda row: row.day.isoformat()).items()
            ],
            "models": [
                {"model": model, **_describe_total(models[model])}
                for model in sorted(models, key=lambda name: (-_cost(models[name]), name))
            ],
        }
    )


@router.put(
    "/tenants/{slug}/caps",
    response_model=CapsAnswer,
    summary="Set what a tenant may spend on models (operators)",
    responses=problems(404, 408, 413, 415, 422),
    openapi_extra=takes(NewCaps),
)
async def set_caps(
    access: Operator, tenant: PathTenant, new: Annotated[NewCaps, Depends(read_body(NewCaps))]
) -> Response:
    """For a day and a month in UTC, and for a conversation. All three are replaced."""
    caps = await budgets.set_caps(access.database, tenant.slug, new.parse(), access.change)
    return answer(_describe_caps(caps))


def _sum_up(rows: Iterable[Spend], key: Callable[[Spend], str]) -> dict[str, list[Spend]]:
    """The rows of each day or model, in the order in which these come."""
    found: dict[str, list[Spend]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _cost(rows: Iterable[Spend]) -> int:
    return sum(row.cost for row in rows)


def _describe_total(rows: list[Spend]) -> dict[str, object]:
    return {
        "requests": sum(row.requests for row in rows),
        "input_tokens": sum(row.input_tokens for row in rows),
        "output_tokens": sum(row.output_tokens for row in rows),
        "cost_usd": dollars.show(_cost(rows)),
    }


def _describe_use(cost: int, share: int | None) -> dict[str, object]:
    return {"cost_usd": dollars.show(cost), "share_percent": share}


def _describe_caps(caps: Caps) -> dict[str, object]:
    return {name: show_cap(cap) for name, cap in caps.by_name().items()}
