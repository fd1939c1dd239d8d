"""A tenant's questions and answers from the command line."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from hlas.cli.database import AsJson, show, with_operators
from hlas.errors import TenantError
from hlas.knowledge import entries, files
from hlas.knowledge.entries import StoredEntry
from hlas.knowledge.language import Language
from hlas.store.db import Database
from hlas.tenants import tenants

knowledge = typer.Typer(help="What a tenant's assistant knows: import, list, remove.")

Tenant = Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")]


async def _find_tenant_id(operators: Database, slug: str) -> UUID:
    return (await tenants.find_tenant(operators, slug)).id


@knowledge.command("import")
def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Markdown (`## question`, then the answer) or CSV (question, answer, "
            "keywords, language).",
        ),
    ],
    tenant: Tenant,
    language: Annotated[
        Language | None,
        typer.Option(metavar="LANGUAGE", help="cs or en, for entries that name no language."),
    ] = None,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove entries that are not in the file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add entries from a file, or update those with the same question.

    All of them are imported or none.
    """
    found = files.read(file, language)

    async def work(operators: Database) -> entries.Saved:
        tenant_id = await _find_tenant_id(operators, tenant)
        # On standard error, and only on a terminal.
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
def list_entries(
    slug: Annotated[str | None, typer.Argument(metavar="SLUG", help="The tenant's slug.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="SLUG", help="The same.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List a tenant's entries."""
    if slug and tenant and slug != tenant:
        raise TenantError("name one tenant")
    whose = slug or tenant
    if not whose:
        raise TenantError("name the tenant: `hlas knowledge list SLUG`")

    async def work(operators: Database) -> list[StoredEntry]:
        return await entries.list_entries(operators, await _find_tenant_id(operators, whose))

    found = with_operators(work)
    lines = [f"{one.id}  {one.language or 'any':<3}  {one.question}" for one in found]
    show(
        found,
        as_json=as_json,
        text="\n".join(lines) or "No entries yet: `hlas knowledge import`.",
    )


@knowledge.command()
def remove(
    entry: Annotated[
        list[UUID], typer.Argument(metavar="ID", help="Ids from `hlas knowledge list`.")
    ],
    tenant: Tenant,
    *,
    as_json: AsJson = False,
) -> None:
    """Remove entries by their ids. All of them or none."""

    async def work(operators: Database) -> None:
        await entries.remove_entries(operators, await _find_tenant_id(operators, tenant), entry)

    with_operators(work)
    show(
        {"removed": [str(one) for one in entry]},
        as_json=as_json,
        text=f"Removed {len(entry)} of {tenant}'s entries.",
    )
