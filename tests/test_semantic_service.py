"""A service that ranks by meaning: one process a host, killed under load, or not installed."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil

from embedding import find_processes, needs_extra, until
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from hlas.tenants import tenants
from processes import UNLIMITED, Served, environment, hlas, serve_process

ORIGIN = "https://semantic.example"
QUESTION, ANSWER = "What does delivery cost?", "Delivery costs 99 crowns."
ENTRIES = [
    Entry(QUESTION, ANSWER, language="en"),
    Entry("When are you open?", "From 9 to 17.", language="en"),
]
WITHOUT_EXTRA = Path(__file__).parent / "support" / "without_semantic"


async def add_shop(operators: Database) -> UUID:
    shop = await tenants.add(operators, "Shop", "shop", [ORIGIN])
    await entries.save(operators, shop.id, ENTRIES, source="test")
    return shop.id


async def ask(client: httpx.AsyncClient) -> None:
    """A visitor asks, and gets the answer."""
    opened = await client.post("/widget/session", headers={"Origin": ORIGIN})
    headers = {"Origin": ORIGIN, "Authorization": f"Bearer {opened.json()['token']}"}
    sent = await client.post("/widget/messages", headers=headers, json={"text": QUESTION})
    assert sent.status_code == 200
    answer = await client.post("/widget/messages/assistant", headers=headers)
    assert (answer.status_code, answer.json()["text"]) == (200, ANSWER)


async def read_metrics(served: Served) -> dict[str, float]:
    lines = (await served.client.get("/metrics")).text.splitlines()
    values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in values}


async def until_metric(served: Served, name: str, least: float) -> None:
    async with asyncio.timeout(60):
        while (await read_metrics(served)).get(name, 0) < least:  # noqa: ASYNC110  # it is a poll
            await asyncio.sleep(0.2)


async def until_vectors(operators: Database) -> None:
    async with asyncio.timeout(60):
        while await operators.all(  # noqa: ASYNC110  # another process makes them
            "select from knowledge k left join knowledge_vectors v on v.entry_id = k.id "
            "where v.version is distinct from k.version"
        ):
            await asyncio.sleep(0.1)


def list_modules(process: psutil.Process) -> str:
    return " ".join(mapped.path for mapped in process.memory_maps())


@needs_extra
async def test_killed_under_load(database_url: str, operators: Database, tmp_path: Path) -> None:
    """Two workers share one process and load none of its libraries. It is killed while visitors
    ask: each of them gets the answer, and the process comes back.
    """
    await add_shop(operators)
    variables = {"EMBEDDING_MODEL": "", "DATA_DIR": str(tmp_path), **UNLIMITED}
    async with serve_process(database_url, workers=2, **variables) as served:
        await until_vectors(operators)
        (first,) = find_processes(tmp_path)
        await ask(served.client)
        is_over = False

        async def visit() -> int:
            asked = 0
            while not is_over:
                await ask(served.client)
                asked += 1
            return asked

        visitors = [asyncio.create_task(visit()) for _ in range(4)]
        await until_metric(served, 'hlas_semantic_total{outcome="ok"}', 4)
        os.kill(first, signal.SIGKILL)
        await until(lambda: set(find_processes(tmp_path)) - {first})
        await until(lambda: len(served.events("embedding_ready")) == 2)
        answered = (await read_metrics(served))['hlas_semantic_total{outcome="ok"}']
        await until_metric(served, 'hlas_semantic_total{outcome="ok"}', answered + 4)
        is_over = True
        assert min(await asyncio.gather(*visitors)) > 0
        metrics = await read_metrics(served)
        assert len(find_processes(tmp_path)) == 1
        assert metrics["hlas_embedding_up"] == 1
        assert metrics["hlas_vectors_missing"] == 0
        assert metrics['hlas_semantic_total{outcome="failed"}'] == 0
        loaded = [list_modules(worker) for worker in served.workers]
        assert len(loaded) == 2
        assert not any(name in one for one in loaded for name in ("numpy", "onnxruntime"))
        (ended,) = served.events("embedding_ended")
        assert ended["status"] == -signal.SIGKILL
    assert find_processes(tmp_path) == []


async def test_without_the_extra(database_url: str, operators: Database, tmp_path: Path) -> None:
    """Where the extra is not installed, the service starts and answers, and starts no process;
    the doctor says so.
    """
    await add_shop(operators)
    variables: dict[str, Any] = {
        "EMBEDDING_MODEL": "",
        "DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(WITHOUT_EXTRA),
        **UNLIMITED,
    }
    async with serve_process(database_url, **variables) as served:
        await ask(served.client)
        assert find_processes(tmp_path) == []
        assert not [line for line in served.events() if line["event"].startswith("embedding")]
        assert (await read_metrics(served))["hlas_embedding_up"] == 0
        examined = hlas("doctor", cwd=tmp_path, **environment(database_url, **variables))
    assert "not installed: answers are found by their words alone" in examined.stdout
