"""The demo tenant: a small internet provider, its questions and answers in Czech and English."""

from pathlib import Path
from uuid import UUID

from hlas import knowledge, knowledge_files
from hlas.db import Database
from hlas.knowledge import Entry
from hlas.language import LANGUAGES
from hlas.tenants import Change

HERE = Path(__file__).parent

DEMO_FALLBACK = (
    "Na tohle vám raději odpoví kolegové: **800 123 400**, ve všední dny od 8 do 18 hodin.\n\n"
    "Our colleagues will know: **800 123 400**, working days from 8 to 18."
)


def entries() -> list[Entry]:
    return [
        entry
        for language in LANGUAGES
        for entry in knowledge_files.read(HERE / f"knowledge.{language}.md", language)
    ]


async def load_demo(operators: Database, tenant_id: str | UUID) -> None:
    """Give the demo tenant its knowledge."""
    await knowledge.save(
        operators,
        UUID(str(tenant_id)),
        entries(),
        source="demo",
        replace=True,
        change=Change(actor="demo"),
    )
