"""The service as a whole: health, several workers, a database that is away, and an orderly end."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psutil
import pytest

from cables import Cable
from conftest import make_settings
from factories import Live, Site, make_site, serve_app
from hlas import tenants
from hlas.db import Database
from hlas.migrations import head
from processes import serve_process

# What the contract promises, and what a busy machine may add to it.
PROMISED = 3.0
BUSY = 5.0


async def test_health(live_server: Live, database_url: str) -> None:
    """/health needs no database; /ready says whether the schema is the one this code needs."""
    client = live_server.client
    assert (await client.get("/health")).json() == {"status": "ok"}
    assert (await client.get("/ready")).status_code == 200
    owner = await asyncpg.connect(database_url)
    await owner.execute("update alembic_version set version_num = '0001'")
    old = await client.get("/ready")
    await owner.execute("drop table alembic_version")
    none = await client.get("/ready")
    for answer in (old, none):
        assert (answer.status_code, answer.json()["detail"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    assert (await client.get("/health")).status_code == 200
    await owner.close()
    assert head() == "0001" or head() > "0001"


async def test_unknown(live_server: Live) -> None:
    """404 and 405 come in the one error shape, with the methods that are allowed."""
    answer = await live_server.client.get("/nothing")
    assert (answer.status_code, answer.json()["detail"]) == (404, "not_found")
    answer = await live_server.client.delete("/widget/messages")
    assert (answer.status_code, answer.json()["detail"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    for path in ("/widget/messages/", "/widget//messages", "/health/"):
        answer = await live_server.client.get(path)
        assert answer.status_code == 404
        assert set(answer.json()) == {"detail", "message", "request_id"}
