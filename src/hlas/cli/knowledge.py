"""A tenant's questions and answers from the command line."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from hlas import knowledge as entries
from hlas import knowledge_files, tenants
from hlas.cli.database import AsJson, show, with_operators
from hlas.db import Database
from hlas.language import Language

knowledge = typer.Typer(help="What a tenant's assistant knows: import, list, remove.")

Tenant = Annotated[str, typer.Option(help="The tenant's slug.")]


async def _tenant_id(operators: Database, slug: str) -> UUID:
    return UUID((await tenants.by_slug(operators, slug))["id"])


@knowledge.command("import")
def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="Markdown (`## question`, then the answer) or CSV (question, answer, "
            "keywords, language)."
        ),
    ],
    tenant: Tenant,
    language: Annotated[
        Language | None, typer.Option(help="The language of entries that name none.")
    ] = None,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove entries that are not in the file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add entries from a file; those with a known question are updated. All of them or none."""
    found = knowledge_files.read(file, language)

    async def work(operators: Database) -> entries.Saved:
        tenant_id = await _tenant_id(operators, tenant)
        # On standard error, and only where somebody watches.
        with typer.progressbar(
            length=len(found),
            label="Importing",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
        ) as bar:
            return await entries.save(
                operators,
                tenant_id,
                found,
                source=file.name,
                replace=replace,
                on_progress=bar.update,
            )

    saved = with_operators(work)
    show(
        asdict(saved),
        as_json=as_json,
        text=f"{tenant}: {saved.added} added, {saved.updated} updated, "
        f"{saved.unchanged} unchanged, {saved.removed} removed.",
    )


@knowledge.command("list")
def list_entries(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """List a tenant's entries."""

    async def work(operators: Database) -> list[dict[str, Any]]:
        return await entries.listed(operators, await _tenant_id(operators, tenant))

    found = with_operators(work)
    lines = [f"{one['id']}  {one['language'] or '--'}  {one['question']}" for one in found]
    show(
        found,
        as_json=as_json,
        text="\n".join(lines) or "No entries yet: `hlas knowledge import`.",
    )


@knowledge.command()
def remove(
    entry: Annotated[list[UUID], typer.Argument(help="Ids from `hlas knowledge list`.")],
    tenant: Tenant,
    *,
    as_json: AsJson = False,
) -> None:
    """Remove entries by their ids. All of them or none."""

    async def work(operators: Database) -> None:
        await entries.remove(operators, await _tenant_id(operators, tenant), entry)

    with_operators(work)
    show(
        {"removed": [str(one) for one in entry]},
        as_json=as_json,
        text=f"Removed {len(entry)} of {tenant}'s entries.",
    )
