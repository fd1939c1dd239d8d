"""What tests build: a live server, tenants on it, and visitors' sessions."""

import asyncio
import io
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
from uvicorn import Config, Server

import log_scan
from hlas import log
from hlas.app import create_app
from hlas.http import server as http_server
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.store.logins import Logins
from hlas.store.writer import Writer
from hlas.tenants import tenants
from hlas.tenants.tenants import Handler

# Makes an empty database with an owner and roles of its own.
MakeLogins = Callable[..., Awaitable[Logins]]

_numbers = itertools.count(1)


@dataclass
class Live:
    """An application that listens."""

    url: str
    app: Any
    log_stream: io.BytesIO
    client: httpx.AsyncClient

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What was logged so far."""
        log.flush()
        lines = [orjson.loads(line) for line in self.log_stream.getvalue().splitlines()]
        return [line for line in lines if name is None or line["event"] == name]


@dataclass
class Site:
    """A tenant's website with a visitor on it."""

    live: Live
    slug: str
    tenant_id: str
    origin: str
    session: dict[str, Any] = field(default_factory=dict)

    @property
    def conversation_id(self) -> str:
        return str(self.session["conversation_id"])

    def headers(self, **extra: str) -> dict[str, str]:
        return {
            "Origin": self.origin,
            "Authorization": f"Bearer {self.session['token']}",
            **{name.replace("_", "-"): value for name, value in extra.items()},
        }

    async def open(self, **body: Any) -> dict[str, Any]:
        """A new session; the earlier one is left as it is."""
        answer = await self.live.client.post(
            "/widget/session", headers={"Origin": self.origin}, json=body
        )
        assert answer.status_code == 200, answer.text
        self.session = answer.json()
        return self.session

    async def send(
        self, text: str = "hello", key: str | None = None, **fields: Any
    ) -> httpx.Response:
        extra = {"Idempotency-Key": key} if key is not None else {}
        return await self.live.client.post(
            "/widget/messages",
            headers={**self.headers(), **extra},
            json={"text": text, **fields},
        )

    async def history(self, **query: Any) -> dict[str, Any]:
        answer = await self.live.client.get(
            f"/widget/conversations/{self.conversation_id}/messages",
            headers=self.headers(),
            params=query,
        )
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PromptServer(Server):
    """uvicorn's takes 0.2 s to stop, because it looks every 0.1 s whether there is more to do."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        for counter in itertools.count():
            if await self.on_tick(counter):
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), timeout=0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        async with asyncio.timeout(self.config.timeout_graceful_shutdown):
            while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110  # uvicorn has no event for it
                await asyncio.sleep(0.002)
        await self.lifespan.shutdown()


@asynccontextmanager
async def serve_app(settings: Settings, logs: io.BytesIO, port: int = 0) -> AsyncIterator[Live]:
    """Run the application as in production, but in this event loop."""
    app = create_app(settings)
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    server = PromptServer(http_server.config(app))
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    limits = httpx.Limits(max_connections=200)
    hooks = {"request": [log_scan.hear_request]}
    try:
        async with httpx.AsyncClient(
            base_url=url, timeout=20, limits=limits, event_hooks=hooks
        ) as client:
            yield Live(url, app, logs, client)
    finally:
        # After a failed test, too: a server that is left running would fail those that follow.
        server.stop()
        await task
        listener.close()


async def make_site(
    live: Live, operators: Database, origin: str | None = None, handler: Handler = "human"
) -> Site:
    """A new tenant that allows one domain, and an open session on it.

    Unless the agent handles its conversations, visitors' messages are the only ones.
    """
    number = next(_numbers)
    slug = f"shop-{number}"
    origin = origin or f"https://{slug}.example"
    made = await tenants.add(operators, f"Shop {number}", slug, [origin])
    await operators.execute("update tenants set handler = $2 where id = $1", made.id, handler)
    site = Site(live, slug, str(made.id), origin)
    await site.open()
    return site


async def leave_to_people(operators: Database) -> None:
    """From here on nobody but visitors writes to new conversations of the tenants there are."""
    await operators.execute("update tenants set handler = 'human'")


async def run_out_of_patience(writer: Writer, count: int) -> None:
    """So many messages have met a busy conversation, and their time is up: no clock involved."""
    async with asyncio.timeout(60):
        while True:
            drafts = [*writer._writing, *writer._waiting]
            if len(drafts) == count and all(draft.locked for draft in drafts):
                break
            await asyncio.sleep(0.005)
    for draft in drafts:
        draft.deadline = 0.0


def url_of(server_url: str, database: str) -> str:
    """The same server and user, another database."""
    head, _, query = server_url.partition("?")
    return f"{head.rpartition('/')[0]}/{database}?{query}"


def make_settings(database_url: str, **overrides: Any) -> Settings:
    generous = {
        f"rate_limit_{name}": "1000000/min"
        for name in (
            "session_ip",
            "session_tenant",
            "messages_ip",
            "messages_tenant",
            "messages_conversation",
            "reads_ip",
        )
    }
    values = {
        "database_url": database_url,
        "widget_session_jwt_secret": log_scan.SECRET,
        "max_connections_ip": 0,
        # A process of its own for each server would cost more than most tests do.
        "embedding_model": "off",
        **generous,
        **overrides,
    }
    return Settings(_env_file=None, **values)
