"""Vectors of an OpenAI-compatible endpoint: found by meaning, paid for, and harmless failures."""

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest_asyncio

import log_scan
from embedding import Meter, Worker, compare, needs_extra, open_worker, run_host
from hlas.agent.embedder import EndpointEmbedder
from hlas.agent.money.spend import Ledger, list_spend
from hlas.agent.providers import embeddings, models
from hlas.agent.providers.chat import ChatClient
from hlas.agent.providers.models import ModelChanges, NewModel
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.observe.metrics import Metrics
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants
from scripted_embeddings import ScriptedEmbeddings, serve_embeddings

pytestmark = needs_extra

KEY = "sk-embeddings-0123456789abcdef"
VAULT = Vault("a key for tests that is long enough")
HOURS = Entry("When are you open?", "From 9 to 17.", language="en")
DELIVERY = Entry("What does delivery cost?", "Delivery costs 99 crowns.", language="en")
POSTAGE = "kolik stojí postage"


@dataclass
class Shop:
    """A tenant whose host uses the endpoint."""

    id: str
    operators: Database
    provider: ScriptedEmbeddings
    worker: Worker

    async def ask(self) -> str:
        meaning = await compare(self.worker, self.id, POSTAGE)
        listed = await entries.list_entries(self.operators, UUID(self.id))
        questions = {str(one.id): one.question for one in listed}
        return questions[max(meaning, key=meaning.__getitem__)]

    async def spent(self) -> list[tuple[int, int, int]]:
        rows = await list_spend(self.operators, UUID(self.id), 1)
        return [(row.requests, row.input_tokens, row.cost) for row in rows]

    async def cap(self, name: str, amount: int) -> None:
        await self.operators.execute(
            f"update budgets set {name} = $2 where tenant_id = $1", self.id, amount
        )


@pytest_asyncio.fixture
async def shop(database: Database, operators: Database, logs: io.BytesIO) -> AsyncIterator[Shop]:
    log_scan.hear(KEY, POSTAGE)
    made = await tenants.add(operators, "Shop", "shop", [])
    await entries.save(operators, made.id, [HOURS, DELIVERY], source="test")
    client = ChatClient()
    async with serve_embeddings() as provider, run_host(embedding_model="vectors") as host:
        # A dollar for a million tokens: a thousand nano-dollars for one.
        new = NewModel(
            name="vectors",
            base_url=provider.url,
            model="embed-1",
            key=KEY,
            input_price="1",
            output_price="0",
        )
        await models.add(operators, VAULT, new)
        ledger = Ledger(operators, Metrics())
        made_embedder = EndpointEmbedder(operators, VAULT, client, ledger, "vectors")
        async with open_worker(host.socket, database, operators, made_embedder) as worker:
            yield Shop(str(made.id), operators, provider, worker)
    await client.close()


async def test_found_and_paid(shop: Shop) -> None:
    """Entries and questions have vectors of the endpoint, as they were written; the tenant pays
    what the provider reports, and the key goes to the provider and nowhere else.
    """
    await shop.worker.maker.tick()
    assert await shop.ask() == DELIVERY.question
    asked = [one["input"] for one in shop.provider.requests]
    assert (len(asked), asked[-1]) == (3, [POSTAGE])
    assert {one["model"] for one in shop.provider.requests} == {"embed-1"}
    assert set(shop.provider.keys) == {f"Bearer {KEY}"}
    assert await shop.spent() == [(3, 21, 21_000)]
    assert await shop.operators.all("select from reservations where not is_settled") == []


async def test_free_model(shop: Shop) -> None:
    """What costs nothing is not in the books, and no cap stops it."""
    await models.update(shop.operators, VAULT, "vectors", ModelChanges(is_free=True))
    await shop.cap("cap_day", 0)
    await shop.worker.maker.tick()
    assert await shop.ask() == DELIVERY.question
    assert await shop.spent() == []


async def test_cap(shop: Shop) -> None:
    """At a cap nothing is sent; entries and questions are found by their words meanwhile."""
    await shop.worker.maker.tick()
    await shop.ask()
    asked = len(shop.provider.requests)
    await shop.cap("cap_day", 1)
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    assert shop.worker.meter.outcomes["budget"] == 1
    await entries.save(shop.operators, UUID(shop.id), [Entry("Parking?", "Yes.")], source="test")
    await shop.worker.maker.tick()
    assert len(shop.provider.requests) == asked
    assert shop.worker.meter.missing[-1] == 1


async def test_unpaid_failures(shop: Shop) -> None:
    """A refusal that nobody bills is given back; one that may be billed counts in full."""
    await shop.worker.maker.tick()
    before = (await shop.spent())[0][2]
    shop.provider.status = 429
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    assert (await shop.spent())[0][2] == before
    shop.provider.status = 500
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    body = len(embeddings.encode(await find_provider(shop), [POSTAGE]))
    assert (await shop.spent())[0][2] == before + body * 1000
    # After two failures in a row it is left alone for a while.
    asked = len(shop.provider.requests)
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    assert len(shop.provider.requests) == asked
    assert shop.worker.meter.outcomes == {"endpoint": 2, "skipped": 1}


async def find_provider(shop: Shop) -> models.Model:
    return await models.find(shop.operators, VAULT, "vectors")


NONSENSE: list[Any] = [
    lambda _: [],
    lambda _: {"data": "none"},
    lambda body: {**body, "data": []},
    lambda body: {**body, "data": body["data"] * 2},
    lambda body: {**body, "data": [{"index": 0, "embedding": []}]},
    lambda body: {**body, "data": [{"index": 0, "embedding": ["a", "b"]}]},
    lambda body: {**body, "data": [{"index": 0, "embedding": [0.0, 0.0]}]},
    lambda body: {**body, "data": [{"index": 0, "embedding": [1.7e308, 1.7e308]}]},
    lambda body: {**body, "data": [{"index": 0, "embedding": [1.0] * 5000}]},
    lambda body: {**body, "data": [{"index": [], "embedding": [1.0, 1.0]}]},
    lambda body: {**body, "filler": "x" * 200_000},
]


async def test_nonsense(shop: Shop) -> None:
    """Whatever the endpoint answers instead of a vector, the question is answered without it."""
    await shop.worker.maker.tick()
    for change in NONSENSE:
        shop.provider.change = change
        shop.worker.client._breaker.count(is_failure=False)
        shop.worker.meter.outcomes.clear()
        meaning = await shop.worker.client.compare(shop.id, POSTAGE)
        outcome = dict(shop.worker.meter.outcomes)
        assert (meaning, outcome) == (None, {"endpoint": 1}), change
    shop.provider.change = lambda body: body
    shop.worker.client._breaker.count(is_failure=False)
    assert await shop.ask() == DELIVERY.question


async def test_usage_that_is_not_credible(shop: Shop) -> None:
    """Without a report, or with an absurd one, a request costs at most its reservation."""
    body = len(embeddings.encode(await find_provider(shop), [POSTAGE]))
    await shop.worker.maker.tick()
    spent = (await shop.spent())[0][2]
    for usage in (None, {"prompt_tokens": 0}, {"prompt_tokens": -1}, {"prompt_tokens": 10**7}):
        shop.provider.usage = usage
        assert await shop.ask() == DELIVERY.question
        spent += body * 1000
        assert (await shop.spent())[0][2] == spent


async def test_slow_endpoint(shop: Shop) -> None:
    """A question waits for a bounded time; what was sent counts in full."""
    await shop.worker.maker.tick()
    before = (await shop.spent())[0][2]
    shop.provider.gate.clear()
    shop.worker.embedder.seconds = 0.2
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    async with asyncio.timeout(60):
        while (await shop.spent())[0][2] == before:  # noqa: ASYNC110  # a task settles it
            await asyncio.sleep(0.01)


async def test_another_model_behind_the_name(shop: Shop) -> None:
    """`hlas model set` changes the model: its old vectors are not compared, new ones are made."""
    await shop.worker.maker.tick()
    (old,) = await shop.operators.all("select distinct model from knowledge_vectors")
    assert old["model"].startswith("vectors@")
    changes = ModelChanges(model="embed-2", is_free=True)
    await models.update(shop.operators, VAULT, "vectors", changes)
    shop.worker.embedder.forget_model()
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    await shop.operators.execute("select nextval('knowledge_versions')")
    await shop.worker.maker.tick()
    assert await shop.ask() == DELIVERY.question
    (new,) = await shop.operators.all("select distinct model from knowledge_vectors")
    assert new["model"] != old["model"]


async def test_no_such_model(shop: Shop) -> None:
    """EMBEDDING_MODEL that was never added, or was removed: found by words, and no error."""
    await models.remove(shop.operators, "vectors")
    await shop.worker.maker.tick()
    assert await shop.worker.client.compare(shop.id, POSTAGE) is None
    assert isinstance(shop.worker.meter, Meter)
    assert shop.worker.meter.outcomes == {"endpoint": 1}
    assert shop.provider.requests == []


async def test_entry_that_is_refused(shop: Shop) -> None:
    """An entry that the provider refuses for its text keeps the others from nothing."""
    shop.provider.status = 400
    await shop.worker.maker.tick()
    assert shop.worker.meter.missing[-1] == 0
    # An endpoint that is away is another matter: its entries wait.
    shop.provider.status = 503
    await entries.save(shop.operators, UUID(shop.id), [Entry("Parking?", "Yes.")], source="test")
    await shop.worker.maker.tick()
    assert shop.worker.meter.missing[-1] == 1
