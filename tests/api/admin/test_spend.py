"""Spend and caps through the admin API."""

from uuid import UUID

import pytest

from administration import audit_of, dump_state, make_desk
from factories import Site, make_site
from hlas.agent.money.spend import Ledger, Payer
from hlas.agent.providers.models import MILLION, Model
from hlas.observe.metrics import Metrics
from hlas.store.db import Database

# A thousandth of a dollar for a token.
MODEL = Model("large", "https://models.example/v1", "large-1", "", 10**6 * MILLION, 0)
CAPS = {"day": "1.50", "month": None, "conversation": "0.000000001"}


async def pay(site: Site, operators: Database, tokens: int) -> None:
    run_id = str(UUID(int=1))
    payer = Payer(site.tenant_id, site.conversation_id, run_id)
    await Ledger(operators, Metrics()).reserve(payer, MODEL, b"x" * tokens, 0)


async def test_read_spend(site: Site, operators: Database) -> None:
    """Days, models, caps and shares, exact in dollars, for an operator and the tenant's own key."""
    await pay(site, operators, 300)
    await pay(await make_site(site.live, operators), operators, 200)
    today = await operators.one("select (clock_timestamp() at time zone 'UTC')::date as day")
    assert today is not None
    total = {"requests": 1, "input_tokens": 0, "output_tokens": 0, "cost_usd": "0.3"}
    for slug in (None, site.slug):
        desk = await make_desk(site.live, operators, slug)
        assert await desk.get(f"/tenants/{site.slug}/spend") == {
            "today": {"cost_usd": "0.3", "share_percent": 6},
            "month": {"cost_usd": "0.3", "share_percent": 0},
            "caps": {"day": "5", "month": "50", "conversation": "0.5"},
            "days": [{"day": today["day"].isoformat(), **total}],
            "models": [{"model": "large", **total}],
        }


async def test_foreign_spend(site: Site, operators: Database) -> None:
    """A tenant's key reads only its own spend; another tenant is not found."""
    other = await make_site(site.live, operators)
    desk = await make_desk(site.live, operators, site.slug)
    answer = await desk.ask("GET", f"/tenants/{other.slug}/spend")
    assert (answer.status_code, answer.json()["detail"]) == (404, "tenant_not_found")


async def test_set_caps(site: Site, operators: Database) -> None:
    """An operator replaces all caps; the change is in the audit."""
    desk = await make_desk(site.live, operators)
    answer = await desk.ask("PUT", f"/tenants/{site.slug}/caps", json=CAPS)
    assert answer.status_code == 200
    stored = {"day": "1.5", "month": None, "conversation": "0.000000001"}
    assert answer.json() == stored
    assert (await desk.get(f"/tenants/{site.slug}/spend"))["caps"] == stored
    assert (await audit_of(operators))[-1] == (f"Ada ({desk.prefix})", "caps.update", site.slug)


async def test_only_operators_set_caps(site: Site, operators: Database) -> None:
    """A tenant's own key may not raise its caps."""
    desk = await make_desk(site.live, operators, site.slug)
    before = await dump_state(operators)
    answer = await desk.ask("PUT", f"/tenants/{site.slug}/caps", json=CAPS)
    assert (answer.status_code, answer.json()["detail"]) == (403, "forbidden")
    row = await operators.one("select cap_day from budgets")
    assert row is not None
    assert row["cap_day"] == 5_000_000_000
    assert await dump_state(operators) == before


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"day": 1.5}, "string_type"),
        ({"day": 2}, "string_type"),
        ({"day": "-1"}, "invalid_dollars"),
        ({"day": "0.0000000001"}, "invalid_dollars"),
        ({"day": "1e3"}, "invalid_dollars"),
        ({"day": "9" * 20}, "string_too_long"),
        ({"hour": "1"}, "extra_forbidden"),
    ],
)
async def test_invalid_caps(
    site: Site, operators: Database, changes: dict[str, object], kind: str
) -> None:
    """An amount is text with at most 9 decimals: floats would not be exact."""
    desk = await make_desk(site.live, operators)
    answer = await desk.ask("PUT", f"/tenants/{site.slug}/caps", json={**CAPS, **changes})
    assert answer.status_code == 422
    assert [one["type"] for one in answer.json()["errors"]] == [kind]


async def test_every_cap_is_named(site: Site, operators: Database) -> None:
    """A cap that is left out is an error: it is not lifted."""
    desk = await make_desk(site.live, operators)
    answer = await desk.ask("PUT", f"/tenants/{site.slug}/caps", json={"day": "1"})
    assert answer.status_code == 422
    assert [(one["loc"], one["type"]) for one in answer.json()["errors"]] == [
        (["body", "month"], "missing"),
        (["body", "conversation"], "missing"),
    ]
