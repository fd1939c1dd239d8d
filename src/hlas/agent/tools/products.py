"""A tenant's products: imported from CSV, found by the agent in Czech and English."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self
from uuid import UUID

import asyncpg

from hlas.errors import ProductNotFound, TenantError, TooManyProducts
from hlas.knowledge.entries import Saved
from hlas.knowledge.language import meaningful_words
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

LONGEST_SKU = 100
LONGEST_NAME = 500
LONGEST_DESCRIPTION = 8000
LONGEST_PRICE = 200
LONGEST_URL = 2000
MOST_ATTRIBUTES = 30
LONGEST_ATTRIBUTE = 500
# A search reads all products of a tenant, so this bounds its cost.
MOST_PRODUCTS = 20_000
BATCH_PRODUCTS = 500
MATCHES = 5
# A product with a lower share of the words is not what was meant.
THRESHOLD = 0.4


class ProductError(TenantError):
    """The products cannot be changed this way."""


@dataclass(frozen=True, slots=True)
class Product:
    sku: str
    name: str
    description: str = ""
    price: str = ""
    url: str = ""
    attributes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            sku=row["sku"],
            name=row["name"],
            description=row["description"],
            price=row["price"],
            url=row["url"],
            attributes=row["attributes"],
        )


async def find_products(
    database: Database, tenant_id: str, text: str, limit: int = MATCHES
) -> list[Product]:
    """The tenant's products that match the text, best first; one, where it is a sku."""
    text = text.replace("\0", "").strip()
    rows = await database.all(
        queries.find_products,
        tenant_id,
        text[:LONGEST_SKU],
        meaningful_words(text),
        THRESHOLD,
        limit,
    )
    return [Product.from_row(row) for row in rows]


async def save(
    database: Database,
    tenant_id: UUID,
    products: Sequence[Product],
    *,
    source: str,
    replace: bool = False,
    change: Change = COMMAND_LINE,
    on_progress: Callable[[int], None] = lambda _saved: None,
) -> Saved:
    """Add the products, or update those with the same sku; all of them or none.

    With `replace`, the tenant's other products are removed.
    """
    async with database.transaction() as connection:
        if await connection.fetchval(queries.lock_tenant, tenant_id) is None:
            raise ProductError("there is no such tenant")
        removed = await _remove_others(connection, tenant_id, products) if replace else 0
        added = updated = 0
        for first in range(0, len(products), BATCH_PRODUCTS):
            batch = [asdict(one) for one in products[first : first + BATCH_PRODUCTS]]
            written = await connection.fetch(queries.save_products, tenant_id, batch)
            added += sum(row["added"] for row in written)
            updated += sum(not row["added"] for row in written)
            on_progress(len(batch))
        if await connection.fetchval(queries.count_products, tenant_id) > MOST_PRODUCTS:
            raise TooManyProducts(f"a tenant can have at most {MOST_PRODUCTS} products")
        saved = Saved(added, updated, len(products) - added - updated, removed)
        await record(connection, change, tenant_id, "product.import", source, after=asdict(saved))
    return saved


async def _remove_others(
    connection: asyncpg.Connection, tenant_id: UUID, products: Sequence[Product]
) -> int:
    kept = [product.sku for product in products]
    status = await connection.execute(queries.remove_others, tenant_id, kept)
    return int(status.rpartition(" ")[2])


async def count_products(database: Database, tenant_id: UUID) -> int:
    row = await database.one(queries.count_products, tenant_id)
    return int(row["count"]) if row else 0


async def page_products(
    database: Database, tenant_id: UUID, after: str | None, limit: int
) -> tuple[list[Product], str | None]:
    """A page of products in the order of their skus, and the cursor of the next page."""
    rows = await database.all(queries.page_of_products, tenant_id, after or "", limit + 1)
    page = [Product.from_row(row) for row in rows[:limit]]
    return page, page[-1].sku if len(rows) > limit else None


async def remove_products(
    database: Database, tenant_id: UUID, skus: Sequence[str], change: Change = COMMAND_LINE
) -> None:
    """Remove the products; all of them or none."""
    async with database.transaction() as connection:
        removed = await connection.fetch(queries.remove_products, tenant_id, list(skus))
        missing = set(skus) - {row["sku"] for row in removed}
        if missing:
            raise ProductNotFound(f"there is no product {min(missing)}")
        for row in removed:
            before = {"name": row["name"]}
            await record(connection, change, tenant_id, "product.remove", row["sku"], before)
