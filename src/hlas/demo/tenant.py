"""The demo tenant: a small internet provider with knowledge and products in Czech and English."""

from pathlib import Path
from uuid import UUID

from hlas.agent.tools import product_files, products
from hlas.agent.tools.mcp import servers
from hlas.knowledge import entries as knowledge
from hlas.knowledge import files
from hlas.knowledge.entries import Entry
from hlas.knowledge.language import LANGUAGES
from hlas.store.db import Database
from hlas.store.logins import OPERATOR, Logins
from hlas.tenants import tenants
from hlas.tenants.audit import Change
from hlas.web.demo import DEMO_UI_CONFIG

HERE = Path(__file__).parent

SLUG = "demo"
DOMAINS = ["localhost", "127.0.0.1", "[::1]"]
FIRST_RUN = Change(actor="first run")

# Every worker starts it when the agent looks up a street; `python` is the one that runs Hlas.
COVERAGE = "coverage"
COVERAGE_COMMAND = ("python", "-m", "hlas.demo.localities")
TOOLS = ["search_knowledge", "get_product", "hand_over", f"{COVERAGE}__get_localities"]
ALLOW_TOOLS = (
    "insert into agent_settings (tenant_id, tools) values ($1, $2) "
    "on conflict (tenant_id) do update set tools = excluded.tools"
)

# Events remain after their tenant is removed, so a removed demo tenant is not made again.
MADE_BEFORE = "select 1 from events where action = 'tenant.add' and target = $1 limit 1"

DEMO_FALLBACK = (
    "Na tohle vám raději odpoví kolegové: **800 123 400**, ve všední dny od 8 do 18 hodin.\n\n"
    "Our colleagues will know: **800 123 400**, working days from 8 to 18."
)


def read_entries() -> list[Entry]:
    return [
        entry
        for language in LANGUAGES
        for entry in files.read(HERE / f"knowledge.{language}.md", language)
    ]


async def ensure(logins: Logins) -> None:
    """Make the demo tenant, once for each database."""
    operators = await Database.open(logins, OPERATOR, size=1, statement_seconds=60)
    try:
        if await operators.one(MADE_BEFORE, SLUG):
            return
        made = await tenants.add(
            operators,
            "Demo",
            SLUG,
            DOMAINS,
            ui_config=DEMO_UI_CONFIG,
            fallback_text=DEMO_FALLBACK,
            change=FIRST_RUN,
        )
        await load_demo(operators, made.id)
        await servers.add_program(operators, made.id, COVERAGE, COVERAGE_COMMAND, FIRST_RUN)
        await operators.execute(ALLOW_TOOLS, made.id, TOOLS)
    finally:
        await operators.close()


async def load_demo(operators: Database, tenant_id: UUID) -> None:
    """Import the demo tenant's knowledge and products."""
    entries = read_entries()
    await knowledge.save(
        operators, tenant_id, entries, source="demo", replace=True, change=FIRST_RUN
    )
    await products.save(
        operators,
        tenant_id,
        product_files.read(HERE / "products.csv"),
        source="demo",
        replace=True,
        change=FIRST_RUN,
    )
