"""Tenants whose agent has a language model: the scripted one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx

from factories import Live, Site, make_site
from hlas.agent.tools import products
from hlas.agent.tools.products import Product
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from scripted_model import ScriptedModel

# On a line of its own before a script: the model is given the passage of the first entry.
COVERED = "What does delivery cost?"
ENTRIES = [
    Entry(COVERED, "Delivery costs 99 crowns.", ("say", "call", "repeat"), "en"),
    Entry("When are you open?", "From 9 to 17.", ("usage", "fail", "finish"), "en"),
]
# Dollars for a million tokens, in nano-dollars.
PRICE = 1_000_000_000


async def give_model(
    operators: Database,
    tenant_id: str,
    *urls: str,
    price: int = PRICE,
    caps: dict[str, int | None] | None = None,
    has_products: bool = True,
    **settings: Any,
) -> None:
    """The tenant's agent asks the models at these addresses, in order.

    With products, it asks them whatever the question: a tool may help.
    """
    names = []
    for number, url in enumerate(urls):
        names.append(f"m{tenant_id[-8:]}-{number}")
        await operators.execute(
            "insert into models (name, base_url, model, input_price, output_price) "
            "values ($1, $2, 'scripted', $3, $3)",
            names[-1],
            url,
            price,
        )
    await operators.execute(
        "insert into agent_settings (tenant_id, models) values ($1, $2)", tenant_id, names
    )
    for name, value in settings.items():
        await operators.execute(
            f"update agent_settings set {name} = $2 where tenant_id = $1", tenant_id, value
        )
    for name, value in (caps or {}).items():
        await operators.execute(
            f"update budgets set {name} = $2 where tenant_id = $1", tenant_id, value
        )
    await entries.save(operators, UUID(tenant_id), ENTRIES, source="test")
    if has_products:
        kettle = Product("K-1", "Kettle")
        await products.save(operators, UUID(tenant_id), [kettle], source="test")


@asynccontextmanager
async def modelled_site(
    live: Live, operators: Database, provider: ScriptedModel, **settings: Any
) -> AsyncIterator[Site]:
    site = await make_site(live, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url, **settings)
    yield site


async def ask(site: Site, text: str, key: str | None = None, **options: Any) -> httpx.Response:
    """A message and its answer in one request."""
    extra = {"Idempotency-Key": key} if key is not None else {}
    return await site.live.client.post(
        "/widget/agent/reply",
        headers={**site.headers(), **extra},
        json={"text": text, **({"options": options} if options else {})},
        timeout=60,
    )
