"""What tenants spend on models, from the command line."""

from collections.abc import Sequence
from typing import Annotated

import typer

from hlas.agent.money import budgets, dollars
from hlas.agent.money import spend as spends
from hlas.agent.money.budgets import Budget, show_cap
from hlas.agent.money.spend import Spend
from hlas.cli.database import AsJson, show, with_operators
from hlas.store.db import Database

DAYS = 30


def spend(
    tenant: Annotated[
        str | None,
        typer.Option(metavar="SLUG", help="A tenant's slug: its days and models, too."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what tenants spend on models, and their caps. Days and months are in UTC."""

    async def work(operators: Database) -> tuple[list[Budget], list[Spend]]:
        found = await budgets.list_budgets(operators, tenant)
        if tenant is None:
            return found, []
        return found, await spends.list_spend(operators, found[0].tenant_id, DAYS)

    found, days = with_operators(work)
    described: list[dict[str, object]] = [_describe(budget) for budget in found]
    if tenant is not None:
        described[0]["days"] = [_describe_day(day) for day in days]
    text = _list_budgets(found) if found else "No tenants yet: `hlas tenant add`."
    if days:
        text += f"\n\n{_list_days(days)}"
    elif tenant is not None:
        text += f"\n\nNothing spent in the last {DAYS} days."
    show(described if tenant is None else described[0], as_json=as_json, text=text)


def _describe(budget: Budget) -> dict[str, object]:
    return {
        "tenant": budget.slug,
        "today_usd": dollars.show(budget.used_today),
        "month_usd": dollars.show(budget.used_this_month),
        "caps_usd": {name: show_cap(cap) for name, cap in budget.caps.by_name().items()},
        "share_percent": budget.share,
    }


def _describe_day(one: Spend) -> dict[str, object]:
    return {
        "day": one.day.isoformat(),
        "model": one.model,
        "requests": one.requests,
        "input_tokens": one.input_tokens,
        "output_tokens": one.output_tokens,
        "cost_usd": dollars.show(one.cost),
    }


def _list_budgets(found: Sequence[Budget]) -> str:
    rows = [("TENANT", "TODAY", "THIS MONTH", "CAPS: DAY / MONTH / CONVERSATION", "SHARE")]
    rows += [
        (
            budget.slug,
            dollars.describe(budget.used_today),
            dollars.describe(budget.used_this_month),
            " / ".join(
                "none" if cap is None else dollars.describe(cap)
                for cap in budget.caps.by_name().values()
            ),
            "-" if budget.share is None else f"{budget.share} %",
        )
        for budget in found
    ]
    return _align(rows)


def _list_days(days: Sequence[Spend]) -> str:
    rows = [("DAY", "MODEL", "REQUESTS", "INPUT TOKENS", "OUTPUT TOKENS", "COST")]
    rows += [
        (
            one.day.isoformat(),
            one.model,
            str(one.requests),
            str(one.input_tokens),
            str(one.output_tokens),
            dollars.describe(one.cost),
        )
        for one in days
    ]
    return _align(rows)


def _align(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
