"""A tenant's products from the command line."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from hlas.agent.tools import product_files, products
from hlas.agent.tools.products import Product
from hlas.cli.database import AsJson, show, with_operators
from hlas.knowledge.entries import Saved
from hlas.store.db import Database
from hlas.tenants import tenants

product = typer.Typer(
    help="What a tenant offers, for its agent: import, list, remove.", no_args_is_help=True
)

Tenant = Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")]


async def _find_tenant_id(operators: Database, slug: str) -> UUID:
    return (await tenants.find_tenant(operators, slug)).id


@product.command("import")
def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV in UTF-8: sku, name, description, price, url; other columns are kept, too.",
        ),
    ],
    tenant: Tenant,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove products that are not in the file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add products from a file, or update those with the same sku.

    All of them are imported or none.
    """
    found = product_files.read(file)

    async def work(operators: Database) -> Saved:
        tenant_id = await _find_tenant_id(operators, tenant)
        # On standard error, and only on a terminal.
        with typer.progressbar(
            length=len(found),
            label="Importing",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
        ) as bar:
            return await products.save(
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


@product.command("list")
def list_products(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """List a tenant's products."""

    async def work(operators: Database) -> list[Product]:
        tenant_id = await _find_tenant_id(operators, tenant)
        found, _ = await products.page_products(operators, tenant_id, None, products.MOST_PRODUCTS)
        return found

    found = with_operators(work)
    lines = [f"{one.sku}  {one.name}  {one.price}".rstrip() for one in found]
    show(
        found,
        as_json=as_json,
        text="\n".join(lines) or "No products yet: `hlas product import`.",
    )


@product.command()
def remove(
    sku: Annotated[list[str], typer.Argument(metavar="SKU", help="As `list` shows them.")],
    tenant: Tenant,
    *,
    as_json: AsJson = False,
) -> None:
    """Remove products by their skus. All of them or none."""

    async def work(operators: Database) -> None:
        await products.remove_products(operators, await _find_tenant_id(operators, tenant), sku)

    with_operators(work)
    show(
        {"removed": sku},
        as_json=as_json,
        text=f"Removed {len(sku)} of {tenant}'s products.",
    )
