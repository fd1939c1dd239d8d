"""Live conversations with PgBouncer between the workers and the database."""

import asyncio
import io
from contextlib import suppress

import httpx
import pytest

from factories import make_settings, make_site, serve_app
from hlas.store.db import Database
from poolers import PoolMode, run_pgbouncer
from scripted_agent import ScriptedAgent, words
from streams import Follower, follow


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_two_workers(
    database_url: str, operators: Database, logs: io.BytesIO, mode: PoolMode
) -> None:
    """Messages, their answers, and the text as it is made reach a reader on the other worker."""
    with run_pgbouncer(database_url, mode) as url:
        settings = make_settings(url)
        async with serve_app(settings, logs) as first, serve_app(settings, logs) as second:
            first.app.state.services.runner._agent = ScriptedAgent()
            site = await make_site(first, operators, handler="agent")
            follower = Follower()
            reading = asyncio.create_task(follow(second.client, site, follower))
            for number in range(1, 6):
                assert (await site.send("say 10 words in 1 s")).status_code == 200
                await follower.until_text("word3")
                await follower.until(["user", "assistant"] * number)
            reading.cancel()
            with suppress(asyncio.CancelledError, httpx.HTTPError):
                await reading
            assert [one["content"] for one in follower.messages[1::2]] == [words(10)] * 5
            assert follower.resets == 0
            for live in (first, second):
                reports = live.app.state.services.background.report().values()
                assert [report.failures for report in reports] == [0] * len(reports)
