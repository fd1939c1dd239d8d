"""`hlas spend` on the command line: output and exit status."""

from pathlib import Path

import orjson

from hlas.agent.money import budgets
from hlas.store.db import Database
from hlas.tenants import tenants
from processes import environment, hlas


async def test_spend(database_url: str, operators: Database, tmp_path: Path) -> None:
    """A table of all tenants with headers; one tenant with its days and models; JSON, exact."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = hlas("spend", *arguments, cwd=tmp_path, **environment(database_url))
        return done.returncode, done.stdout, done.stderr

    assert run() == (0, "No tenants yet: `hlas tenant add`.\n", "")
    shop = await tenants.add(operators, "Shop", "shop", [])
    await tenants.add(operators, "Other", "other", [])
    await budgets.set_caps(operators, "shop", {"day": 2_000_000_000, "month": None})
    await budgets.set_caps(operators, "other", {"day": None, "month": None})
    row = await operators.one(
        "insert into spend (tenant_id, day, model, requests, input_tokens, output_tokens, amount)"
        " values ($1, (clock_timestamp() at time zone 'UTC')::date, 'small', 3, 20, 10, 1700000001)"
        " returning day",
        shop.id,
    )
    assert row is not None
    day = row["day"].isoformat()

    header = "TENANT  TODAY  THIS MONTH  CAPS: DAY / MONTH / CONVERSATION  SHARE"
    ours = "shop    $1.70  $1.70       $2.00 / none / $0.50              85 %"
    theirs = "other   $0.00  $0.00       none / none / $0.50               -"
    assert run() == (0, f"{header}\n{theirs}\n{ours}\n", "")
    code, out, err = run("--tenant", "shop")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        header,
        ours,
        "",
        "DAY         MODEL  REQUESTS  INPUT TOKENS  OUTPUT TOKENS  COST",
        f"{day}  small  3         20            10             $1.70",
    ]
    assert run("--tenant", "other")[1].endswith("\n\nNothing spent in the last 30 days.\n")
    described = {
        "tenant": "shop",
        "today_usd": "1.700000001",
        "month_usd": "1.700000001",
        "caps_usd": {"day": "2", "month": None, "conversation": "0.5"},
        "share_percent": 85,
    }
    assert orjson.loads(run("--json")[1])[1] == described
    days = {"requests": 3, "input_tokens": 20, "output_tokens": 10, "cost_usd": "1.700000001"}
    assert orjson.loads(run("--tenant", "shop", "--json")[1]) == {
        **described,
        "days": [{"day": day, "model": "small", **days}],
    }
    code, out, err = run("--tenant", "nobody")
    assert (code, out) == (1, "")
    assert err == "hlas: there is no tenant 'nobody'; `hlas tenant list` shows all\n"
