"""A tenant's questions and answers from the command line."""

import sys
from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer

from hlas.cli import imports
from hlas.cli.database import AsJson, show, with_operators
from hlas.cli.imports import Tenant, find_tenant_id
from hlas.cli.unanswered import unanswered
from hlas.errors import TenantError
from hlas.knowledge import entries, files
from hlas.knowledge.entries import LONGEST_SEARCH, Kind, StoredEntry
from hlas.knowledge.files import Format
from hlas.store.db import Database

knowledge = typer.Typer(help="What an assistant knows: import, refresh, list, export.")
knowledge.command("import")(imports.import_sources)
knowledge.command("refresh")(imports.refresh_sources)
knowledge.command("sources")(imports.list_sources)
knowledge.command("remove-source")(imports.remove_source)
knowledge.add_typer(unanswered, name="unanswered")

Named = Annotated[str | None, typer.Argument(metavar="SLUG", help="The tenant's slug.")]
Same = Annotated[str | None, typer.Option(metavar="SLUG", help="The same as SLUG.")]


def _choose_tenant(slug: str | None, tenant: str | None, command: str) -> str:
    if slug and tenant and slug != tenant:
        raise TenantError("name one tenant")
    whose = slug or tenant
    if not whose:
        raise TenantError(f"name the tenant: `hlas knowledge {command} SLUG`")
    return whose


@knowledge.command("list")
def list_entries(
    slug: Named = None,
    tenant: Same = None,
    search: Annotated[
        str, typer.Option(metavar="WORDS", help="Only entries that contain these words.")
    ] = "",
    kind: Annotated[
        Kind | None, typer.Option(metavar="KIND", help="answer or passage: only these.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List a tenant's entries."""
    whose = _choose_tenant(slug, tenant, "list")

    async def work(operators: Database) -> list[StoredEntry]:
        tenant_id = await find_tenant_id(operators, whose)
        if not (search or kind):
            return await entries.list_entries(operators, tenant_id)
        words = search[:LONGEST_SEARCH]
        found, _ = await entries.page_entries(
            operators, tenant_id, None, entries.MOST_ENTRIES, search=words, kind=kind
        )
        return found

    found = with_operators(work)
    lines = [
        f"{one.id}  {one.language or 'any':<3}  {one.kind:<7}  {one.question}" for one in found
    ]
    nothing = "No entries found." if search or kind else "No entries yet: `hlas knowledge import`."
    show(found, as_json=as_json, text="\n".join(lines) or nothing)


@knowledge.command()
def export(
    slug: Named = None,
    tenant: Same = None,
    form: Annotated[
        Format, typer.Option("--format", metavar="FORMAT", help="md (Markdown) or csv.")
    ] = "md",
    *,
    as_json: AsJson = False,
) -> None:
    """Print all entries as a file that `import` takes."""
    whose = _choose_tenant(slug, tenant, "export")

    async def work(operators: Database) -> list[StoredEntry]:
        return await entries.list_entries(operators, await find_tenant_id(operators, whose))

    found = [one.entry for one in with_operators(work)]
    if as_json or sys.stdout.isatty():
        # Made harmless for a terminal.
        show([asdict(one) for one in found], as_json=as_json, text=files.export(found, form))
    else:
        sys.stdout.buffer.write(files.export(found, form).encode())


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
        await entries.remove_entries(operators, await find_tenant_id(operators, tenant), entry)

    with_operators(work)
    show(
        {"removed": [str(one) for one in entry]},
        as_json=as_json,
        text=f"Removed {len(entry)} of {tenant}'s entries.",
    )
