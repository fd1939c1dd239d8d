"""Tenants whose agent has a language model: the scripted one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx

from factories import Live, Site, make_site
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from scripted_model import ScriptedModel

# Every question of these tests shares a word with this one: the model is given a passage.
ENTRIES = [
    Entry("What does delivery cost?", "Delivery costs 99 crowns.", ("say", "call", "repeat"), "en"),
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
    **settings: Any,
) -> None:
    """The tenant's agent asks the models at these addresses, in order."""
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
