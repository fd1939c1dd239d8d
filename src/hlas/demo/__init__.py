"""The demo tenant of a first run: a small internet provider that answers from its knowledge."""

from uuid import UUID

from hlas import knowledge, tenants
from hlas.db import Database
from hlas.migrations.roles import OPERATOR
from hlas.tenants import Change
from hlas.web.demo import DEMO_UI_CONFIG

SLUG = "demo"
DOMAINS = ["localhost", "127.0.0.1", "[::1]"]

# The audit outlives its tenant, so a demo tenant that was removed is not made again.
MADE_BEFORE = "select 1 from events where action = 'tenant.add' and target = $1 limit 1"


async def ensure(database_url: str) -> None:
    """Make the demo tenant once in the life of a database."""
    operators = await Database.open(database_url, OPERATOR, size=1, statement_seconds=60)
    try:
        if await operators.one(MADE_BEFORE, SLUG):
            return
        made = await tenants.add(
            operators,
            "Demo",
            SLUG,
            DOMAINS,
            ui_config=DEMO_UI_CONFIG,
            fallback_text=knowledge.DEMO_FALLBACK,
            change=Change(actor="first run"),
        )
        await knowledge.load_demo(operators, UUID(made["id"]))
    finally:
        await operators.close()
