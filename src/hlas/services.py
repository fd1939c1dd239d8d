"""What the routes work with, opened and closed together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import asyncpg

from hlas import log
from hlas.agent import Agent
from hlas.agent import knowledge as knowledge_agent
from hlas.conversations import messages
from hlas.errors import HlasError, Unavailable
from hlas.http.gate import Gate
from hlas.limits import Limiter, MemoryLimiter
from hlas.observe.incidents import Watch
from hlas.observe.metrics import Metrics
from hlas.observe.shared import Shared
from hlas.observe.traffic import Traffic
from hlas.operators.sign_ins import KnownSecrets
from hlas.privacy import retention
from hlas.settings import Settings
from hlas.store import migrations
from hlas.store.db import Database, check_role
from hlas.store.logins import APPLICATION, OPERATOR, TENANT_ADMIN, Logins
from hlas.store.writer import Writer
from hlas.visitors import keys
from hlas.visitors.sessions import Origins
from hlas.visitors.tokens import Tokens

START_SECONDS = 30.0
REAP_SECONDS = 60.0
REAP_PAUSE_SECONDS = 0.05
# Retention is counted in days: once an hour, and the first time a minute after the start.
RETENTION_SECONDS = 3600.0

_HEAD = migrations.head()


class Services:
    """Limits and tokens from the start; what needs the database while it is open."""

    database: Database
    agents: Database
    operators: Database
    tenant_admins: Database
    writer: Writer
    origins: Origins
    known_secrets: KnownSecrets
    agent: Agent

    def __init__(self, settings: Settings, database_url: str) -> None:
        self.settings = settings
        self.traffic = Traffic(Watch(settings, self._count_incident))
        self.metrics = Metrics(self.traffic)
        self.tokens = Tokens(
            keys.from_settings(settings), ttl_seconds=settings.widget_session_ttl_minutes * 60
        )
        self.limiter = self._make_limiter()
        self.gate = Gate(settings, self.limiter, self.metrics)
        self.readiness = Shared(self._is_ready)
        self._logins = Logins.from_settings(settings, database_url)

    def _count_incident(self, kind: str) -> None:
        self.metrics.incident(kind)

    def _make_limiter(self) -> Limiter:
        local = MemoryLimiter()
        if not self.settings.redis_url:
            return local
        from hlas.limits.redis import RedisLimiter  # noqa: PLC0415  # loaded by those who have one

        return RedisLimiter(
            self.settings.redis_url, fallback=local, on_away=self.metrics.limits_local.set
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connections and background work for as long as the application serves."""
        logins, settings = self._logins, self.settings
        async with AsyncExitStack() as stack:
            self.database = await Database.open(
                logins, APPLICATION, size=settings.database_pool_size
            )
            stack.push_async_callback(self.database.close)
            self.operators = await Database.open(logins, OPERATOR, size=4, statement_seconds=30)
            stack.push_async_callback(self.operators.close)
            self.tenant_admins = await Database.open(
                logins, TENANT_ADMIN, size=4, statement_seconds=30
            )
            stack.push_async_callback(self.tenant_admins.close)
            await _check_role(self.database, logins.role(APPLICATION))
            await _check_role(self.operators, logins.role(OPERATOR))
            await _check_role(self.tenant_admins, logins.role(TENANT_ADMIN))
            self.origins = Origins(self.database)
            self.known_secrets = KnownSecrets(self.operators)
            self.agents = await Database.open(
                logins,
                APPLICATION,
                size=knowledge_agent.CONNECTIONS,
                statement_seconds=knowledge_agent.STATEMENT_SECONDS,
            )
            stack.push_async_callback(self.agents.close)
            self.agent = knowledge_agent.KnowledgeAgent(self.agents)
            stack.push_async_callback(self.limiter.aclose)
            stack.push_async_callback(self._flush_traffic)
            stack.callback(self.metrics.hand_over)
            for work in (
                self._reap(),
                self._retain(),
                self.gate.follow_overrides(self.operators),
                self.traffic.keep(self.operators),
                self.metrics.share(),
            ):
                stack.push_async_callback(_cancel, asyncio.create_task(work))
            self.writer = Writer(logins, APPLICATION, on_batch=self.metrics.batch)
            # Last in, first out: the queue drains while everything it needs is still there.
            stack.push_async_callback(self.writer.close)
            yield

    async def _is_ready(self) -> bool:
        """The database answers and its schema is the one this code needs."""
        try:
            row = await self.database.one("select version_num from alembic_version")
        except (HlasError, asyncpg.PostgresError):
            return False  # away, never migrated, or its rights were taken away
        return row is not None and row["version_num"] == _HEAD

    async def _flush_traffic(self) -> None:
        with suppress(HlasError, asyncpg.PostgresError):
            await self.traffic.flush(self.operators)

    async def _reap(self) -> None:
        """Forget old idempotency keys, a batch at a time, as long as there are any."""
        hours = self.settings.idempotency_ttl_hours
        more = 0
        while True:
            try:
                await asyncio.sleep(REAP_PAUSE_SECONDS if more else REAP_SECONDS)
                more = await messages.reap_keys(self.operators, hours)
            except (HlasError, asyncpg.PostgresError) as error:
                more = 0
                log.warning("reaper_paused", error=type(error).__name__)

    async def _retain(self) -> None:
        """Delete conversations that their tenants no longer keep."""
        pause = REAP_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = RETENTION_SECONDS
            try:
                removed = await retention.run(self.operators)
            except (HlasError, asyncpg.PostgresError) as error:
                log.warning("retention_paused", error=type(error).__name__)
                continue
            if removed:
                log.info(
                    "retention_removed",
                    tenants=len(removed),
                    conversations=sum(done.conversations for done in removed.values()),
                    messages=sum(done.messages for done in removed.values()),
                )


async def _check_role(database: Database, role: str) -> None:
    """One worker that fails to start ends them all, so it waits while the database is away."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while True:
        try:
            return await check_role(database, role)
        except Unavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
