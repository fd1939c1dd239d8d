"""The spend page of the console."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from administration import audit_of
from browsers import make_browser
from factories import Site, make_site
from hlas.agent.money import budgets
from hlas.agent.money.budgets import Caps
from hlas.agent.money.dollars import NANO
from hlas.agent.money.spend import Spend
from hlas.api.console.spend import DAYS, draw_days
from hlas.store.db import Database

TODAY = date(2026, 3, 4)
USED_UP = "s cap is used up. Answers come from the knowledge until midnight UTC."


async def use(operators: Database, tenant_id: str, amount: int) -> None:
    await operators.execute(
        "insert into spend (tenant_id, day, model, requests, amount)"
        " values ($1, (clock_timestamp() at time zone 'UTC')::date, 'small', 1, $2)"
        " on conflict on constraint pk_spend do update set amount = $2",
        UUID(tenant_id),
        amount,
    )


async def test_warnings(site: Site, operators: Database) -> None:
    """A cap shows its share; a warning appears at 80 % and another one at 100 %."""
    browser = await make_browser(site.live, operators, site.slug)
    page = f"/tenants/{site.slug}/spend"
    for dollars, warning in ((3.99, ""), (4, "80 % of the cap is used."), (5, USED_UP)):
        await use(operators, site.tenant_id, int(dollars * NANO))
        text = (await browser.get(page)).text
        assert f"${dollars:.2f} of $5.00 ({int(dollars * 20)} %)" in text
        assert ('class="note' in text) == bool(warning)
        assert warning in text
        assert '<meter min="0" max="100"' in text


async def test_operators_set_caps(site: Site, operators: Database) -> None:
    """An operator sets caps; an empty one means no cap, an invalid one is explained."""
    browser = await make_browser(site.live, operators)
    page = f"/tenants/{site.slug}/spend"
    answer = await browser.post(page, day="7.25", month=" ", conversation="0")
    assert answer.status_code == 303
    [budget] = await budgets.list_budgets(operators, site.slug)
    assert budget.caps == Caps(7_250_000_000, None, 0)
    assert (await audit_of(operators))[-1][1] == "caps.update"
    for text in ("1,5", "-1", "1e3", "0.0000000001"):
        answer = await browser.post(page, day=text, month="", conversation="")
        assert answer.status_code == 422
        assert "Write US dollars such as 5 or 0.25" in answer.text
        assert f'value="{text}"' in answer.text
    [budget] = await budgets.list_budgets(operators, site.slug)
    assert budget.caps == Caps(7_250_000_000, None, 0)
    assert "A conversation" in (await browser.get(page)).text


async def test_tenants_read_only(site: Site, operators: Database) -> None:
    """A tenant's administrator sees no form, may not send one, and sees no other tenant."""
    other = await make_site(site.live, operators)
    browser = await make_browser(site.live, operators, site.slug)
    page = f"/tenants/{site.slug}/spend"
    assert 'name="conversation"' not in (await browser.get(page)).text
    answer = await browser.post(page, day="", month="", conversation="")
    assert answer.status_code == 403
    [budget] = await budgets.list_budgets(operators, site.slug)
    assert budget.caps.day == 5 * NANO
    assert (await browser.get(f"/tenants/{other.slug}/spend")).status_code == 404


def test_plot() -> None:
    """A column for each of 30 days, in dollars; the most expensive models have their own colour."""
    first = TODAY - timedelta(days=DAYS - 1)
    rows = [Spend(TODAY, f"m{number}", 1, 0, 0, number * NANO) for number in range(1, 8)]
    rows.append(Spend(first, "m7", 1, 0, 0, NANO // 2))
    plot = draw_days(rows, TODAY)
    assert (len(plot.starts), plot.headline, plot.form) == (30, "$28.50", "day")
    assert plot.starts[0] == datetime.combine(first, datetime.min.time(), UTC)
    assert [one.name for one in plot.series] == ["m7", "m6", "m5", "m4", "m3", "Others"]
    assert [one.values[-1] for one in plot.series] == [7, 6, 5, 4, 3, 3]
    assert len({one.tone for one in plot.series}) == 6
    assert plot.series[0].values[0] == 0.5
    assert plot.hint(0) == "m7: 0.5 USD"


def test_empty_plot() -> None:
    """Without any spend the plot says so."""
    plot = draw_days([], TODAY)
    assert plot.is_empty
    assert plot.headline == "$0.00"
