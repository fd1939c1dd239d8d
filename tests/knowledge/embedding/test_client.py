"""Workers and the embedding process: vectors follow the entries, failures harm nobody."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from embedding import (
    PATIENCE,
    Host,
    Meter,
    Worker,
    compare,
    needs_extra,
    open_worker,
    run_host,
    until,
    until_answering,
)
from hlas.agent.ranker import Ranker
from hlas.knowledge import entries
from hlas.knowledge.embedding import client, embedders, runtime, supervisor
from hlas.knowledge.embedding.embedders import ProcessEmbedder
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.protocol import Describe
from hlas.knowledge.embedding.supervisor import Supervisor
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from hlas.tenants import tenants

pytestmark = needs_extra

HOURS = Entry("When are you open?", "From 9 to 17.", language="en")
DELIVERY = Entry("What does delivery cost?", "Delivery costs 99 crowns.", language="en")
POSTAGE = "how much do I pay for postage"


async def add_tenant(operators: Database, slug: str, *known: Entry) -> str:
    made = await tenants.add(operators, slug, slug, [])
    await entries.save(operators, made.id, known, source="test")
    return str(made.id)


async def find_questions(operators: Database, tenant_id: str) -> dict[str, str]:
    """The questions of a tenant's entries, by their ids."""
    listed = await entries.list_entries(operators, UUID(tenant_id))
    return {str(one.id): one.question for one in listed}


async def find_best(worker: Worker, operators: Database, tenant_id: str, text: str) -> str:
    meaning = await compare(worker, tenant_id, text)
    questions = await find_questions(operators, tenant_id)
    return questions[max(meaning, key=meaning.__getitem__)]


@pytest_asyncio.fixture
async def worker(
    shared_host: Host, database: Database, operators: Database
) -> AsyncIterator[Worker]:
    async with open_worker(shared_host.socket, database, operators) as opened:
        yield opened


async def test_vectors_follow_entries(worker: Worker, operators: Database) -> None:
    """New, changed and removed entries: the next tick makes what is missing, and only that."""
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    assert await worker.client.compare(shop, POSTAGE) is None
    assert worker.meter.outcomes == {"empty": 1}
    await worker.maker.tick()
    assert worker.meter.missing == [2, 0, 0]
    assert await find_best(worker, operators, shop, POSTAGE) == DELIVERY.question

    made = await operators.all("select number from knowledge_vectors where entry_id is not null")
    await worker.maker.tick()
    assert made == await operators.all("select number from knowledge_vectors")

    # The same question with another answer: what it was about is no longer near.
    parking = Entry(HOURS.question, "Parking is free behind the building.", language="en")
    before = await compare(worker, shop, "where can I leave my car")
    await entries.save(operators, UUID(shop), [parking], source="test")
    await worker.maker.tick()
    after = await compare(worker, shop, "where can I leave my car")
    ids = {question: one for one, question in (await find_questions(operators, shop)).items()}
    assert after[ids[HOURS.question]] > before[ids[HOURS.question]] + 0.1

    await entries.remove_entries(operators, UUID(shop), [UUID(ids[DELIVERY.question])])
    assert set(await compare(worker, shop, POSTAGE)) == {ids[HOURS.question]}


async def test_stale_vectors_are_not_searched(worker: Worker, operators: Database) -> None:
    """Between a change of an entry and its new vector nothing is found by what it was."""
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    await worker.maker.tick()
    assert len(await compare(worker, shop, POSTAGE)) == 2
    changed = Entry(DELIVERY.question, "We do not deliver.", language="en")
    await entries.save(operators, UUID(shop), [changed], source="test")
    questions = await find_questions(operators, shop)
    found = await compare(worker, shop, POSTAGE)
    assert [questions[one] for one in found] == [HOURS.question]


async def test_another_model(worker: Worker, operators: Database) -> None:
    """Vectors of another model are never compared; they are made again."""
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    await worker.maker.tick()
    await operators.execute("update knowledge_vectors set model = 'old', number = -1")
    assert await worker.client.compare(shop, POSTAGE) is None
    await operators.execute("select nextval('knowledge_versions')")
    await worker.maker.tick()
    assert await find_best(worker, operators, shop, POSTAGE) == DELIVERY.question
    (row,) = await operators.all("select distinct model from knowledge_vectors")
    assert row["model"] == (await worker.embedder.find_model()).name


async def test_tenants(worker: Worker, operators: Database) -> None:
    """The same knowledge at two tenants: each finds only its own entries."""
    shops = [await add_tenant(operators, slug, HOURS, DELIVERY) for slug in ("one", "two")]
    await worker.maker.tick()
    for shop in shops:
        own = set(await find_questions(operators, shop))
        assert set(await compare(worker, shop, POSTAGE)) == own
    assert await worker.client.compare("00000000-0000-0000-0000-000000000001", "x") is None


async def test_two_makers(
    worker: Worker, shared_host: Host, database: Database, operators: Database
) -> None:
    """Two hosts make vectors at once: each entry has its own once, whoever was first."""
    many = [Entry(f"Question {number}?", f"Answer {number}.") for number in range(40)]
    shop = await add_tenant(operators, "shop", *many)
    async with open_worker(shared_host.socket, database, operators) as other:
        await asyncio.gather(worker.maker.tick(), other.maker.tick())
    rows = await operators.all("select version, number, claimed_at from knowledge_vectors")
    assert len(rows) == 40
    assert all(row["number"] > row["version"] > 0 and not row["claimed_at"] for row in rows)
    # Made once: a second time would have taken more numbers than there are.
    numbers = [row["number"] for row in rows]
    assert max(numbers) - min(numbers) == 39
    assert len(await compare(worker, shop, "Question 7?")) == 20


async def test_text_that_cannot_be_embedded(
    worker: Worker, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that the model cannot read keeps no other entry from getting its vectors."""
    real = ProcessEmbedder.embed_texts

    async def fail(
        self: ProcessEmbedder, model: embedders.Model, tenant_id: str, texts: list[str]
    ) -> list[bytes]:
        if any("open" in text for text in texts):
            raise embedders.BadText
        return await real(self, model, tenant_id, texts)

    monkeypatch.setattr(ProcessEmbedder, "embed_texts", fail)
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    await worker.maker.tick()
    assert worker.meter.missing[-1] == 0
    assert await find_best(worker, operators, shop, "opening hours") == DELIVERY.question


async def test_large_tenant_is_sent_in_pages(
    worker: Worker, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors go to the process in pages, and those of removed entries are forgotten."""
    monkeypatch.setattr(client, "MOST_PAGE_ENTRIES", 3)
    many = [Entry(f"Question {number}?", f"Answer {number}.") for number in range(8)]
    shop = await add_tenant(operators, "shop", HOURS, *many)
    await worker.maker.tick()
    assert len(await compare(worker, shop, HOURS.question)) == 9
    await entries.save(operators, UUID(shop), [HOURS], source="test", replace=True)
    assert len(await compare(worker, shop, HOURS.question)) == 1


async def test_one_process_for_two_workers() -> None:
    """Of two supervisors one starts the process; when it goes, the other takes over."""
    async with run_host() as host:
        other = Supervisor(host.settings, host.meter)
        waiting = asyncio.create_task(other.run())
        try:
            await asyncio.sleep(2 * supervisor.LOCK_SECONDS)
            (first,) = host.pids
            assert (host.supervisor.is_holder, other.is_holder) == (True, False)
            host.stop()
            await until(lambda: other.is_holder)
            await until(lambda: host.pids and host.pids != [first])
            await until_answering(host.socket)
            assert len(host.pids) == 1
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    assert host.pids == []


async def test_killed_under_load(database: Database, operators: Database) -> None:
    """Kill -9 while questions are asked: each is answered, by its words while the process is
    away, and by its meaning again without anybody's help.
    """
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    async with run_host() as host, open_worker(host.socket, database, operators) as worker:
        await worker.maker.tick()
        await compare(worker, shop, POSTAGE)
        ranker = Ranker(database, worker.client)
        is_over = False

        async def visit() -> int:
            asked = 0
            while not is_over:
                matches = await ranker.rank(shop, "What does delivery cost?", "en")
                assert matches[0].question == DELIVERY.question
                asked += 1
                await asyncio.sleep(0)
            return asked

        visitors = [asyncio.create_task(visit()) for _ in range(6)]
        (first,) = host.pids
        await until(lambda: worker.meter.outcomes["ok"] > 5)
        os.kill(first, signal.SIGKILL)
        await until(lambda: worker.meter.outcomes["away"] >= 2)
        answered = worker.meter.outcomes["ok"]
        await until(lambda: worker.meter.outcomes["ok"] > answered + 5)
        is_over = True
        assert all(await asyncio.gather(*visitors))
        assert host.pids != [first]
        assert worker.meter.outcomes["failed"] == 0


async def test_hung_process(
    database: Database, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped: two questions wait for their time, the others not at all; the
    supervisor replaces it, and meanings are compared again.
    """
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    monkeypatch.setattr(supervisor, "HUNG_SECONDS", 3.0)
    async with run_host() as host, open_worker(host.socket, database, operators) as worker:
        await worker.maker.tick()
        await compare(worker, shop, POSTAGE)
        worker.embedder.seconds = embedders.PROCESS_SECONDS
        (first,) = host.pids
        os.kill(first, signal.SIGSTOP)
        for _ in range(client.MOST_FAILURES):
            assert await worker.client.compare(shop, POSTAGE) is None
        assert worker.meter.outcomes["timeout"] == client.MOST_FAILURES
        # Not even a connection is opened.
        monkeypatch.setattr(client, "exchange", None)
        started = asyncio.get_running_loop().time()
        assert await worker.client.compare(shop, POSTAGE) is None
        assert worker.meter.outcomes["skipped"] == 1
        assert asyncio.get_running_loop().time() - started < client.BREAK_SECONDS
        monkeypatch.setattr(client, "exchange", exchange)
        await until(lambda: first not in host.pids)
        worker.embedder.seconds = PATIENCE
        assert await find_best(worker, operators, shop, POSTAGE) == DELIVERY.question


async def test_hung_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process that another worker left behind is not taken for the new one."""
    # Nobody kills the orphan.
    monkeypatch.setattr(supervisor, "HUNG_SECONDS", 1000.0)
    async with run_host() as host:
        (orphan,) = host.pids
        os.kill(orphan, signal.SIGSTOP)
        directory = runtime.locate_directory(host.settings.data_dir)
        # As if its worker had been killed.
        (directory / runtime.LOCK).unlink()
        meter = Meter()
        task = asyncio.create_task(Supervisor(host.settings, meter).run())
        try:
            await until(lambda: meter.is_up)
            assert len(host.pids) == 2
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            os.kill(orphan, signal.SIGCONT)


async def test_no_process(database: Database, operators: Database, tmp_path: Path) -> None:
    """Where no process runs, a question costs next to nothing and is ranked by its words."""
    shop = await add_tenant(operators, "shop", HOURS)
    socket = runtime.find_socket(tmp_path)
    async with open_worker(socket, database, operators) as worker:
        for _ in range(3):
            assert await worker.client.compare(shop, POSTAGE) is None
        assert worker.meter.outcomes == {"away": 2, "skipped": 1}
        await worker.maker.tick()
        assert await operators.all("select from knowledge_vectors") == []


async def test_many_questions(worker: Worker, operators: Database) -> None:
    """More questions at once than can be answered in time: the rest is ranked by words at once."""
    shop = await add_tenant(operators, "shop", HOURS, DELIVERY)
    await worker.maker.tick()
    await compare(worker, shop, POSTAGE)
    worker.meter.outcomes.clear()
    count = 3 * client.MOST_QUESTIONS
    await asyncio.gather(*(worker.client.compare(shop, POSTAGE) for _ in range(count)))
    assert worker.meter.outcomes["busy"] == count - client.MOST_QUESTIONS
    assert worker.meter.outcomes.total() == count


async def test_descriptions_while_busy(shared_host: Host, worker: Worker) -> None:
    """Vectors of entries under way do not make the process look as if it hung."""
    texts = ["Hello there, this is a text. " * 40] * 16
    model = await worker.embedder.find_model()
    making = asyncio.create_task(worker.embedder.embed_texts(model, "", texts))
    for _ in range(20):
        async with asyncio.timeout(supervisor.HUNG_SECONDS):
            await exchange(shared_host.socket, Describe())
    assert len(await making) == 16
