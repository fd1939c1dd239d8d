"""What the routes work with: opened, run in the background and closed together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import asyncpg
import uuid_utils

from hlas.agent.loop import ModelAgent, open_agent
from hlas.agent.money.spend import FORGET_SECONDS as FORGET_RESERVATIONS_SECONDS
from hlas.agent.money.spend import forget_reservations
from hlas.agent.runner import TICK_SECONDS as RUNS_SECONDS
from hlas.agent.runner import Runner
from hlas.agent.tools.mcp.pool import CLEANUP_SECONDS as MCP_CLEANUP_SECONDS
from hlas.background import Background
from hlas.conversations import messages
from hlas.conversations.live import (
    CHECK_SECONDS,
    CLEANUP_SECONDS,
    LIVE_STATEMENT_SECONDS,
    TICK_SECONDS,
    Live,
)
from hlas.conversations.live import CONNECTIONS as LIVE_CONNECTIONS
from hlas.errors import HlasError, Unavailable
from hlas.http.body import Uploads
from hlas.http.gate import OVERRIDES_SECONDS, Gate
from hlas.http.streams import OpenStreams
from hlas.knowledge.embedding.supervisor import Supervisor
from hlas.knowledge.embedding.vectors import TICK_SECONDS as VECTORS_SECONDS
from hlas.knowledge.embedding.vectors import VectorMaker
from hlas.knowledge.imports.reading import SourceReader
from hlas.limits import Limiter, MemoryLimiter
from hlas.observe.incidents import Watch
from hlas.observe.metrics import SHARE_SECONDS, Metrics
from hlas.observe.shared import Shared
from hlas.observe.traffic import FLUSH_SECONDS, FORGET_SECONDS, Traffic, forget
from hlas.operators import sign_ins
from hlas.operators.sign_ins import KnownSecrets
from hlas.outbound.client import OutboundClient
from hlas.privacy import retention
from hlas.settings import Settings
from hlas.store import migrations
from hlas.store.db import Database, check_role
from hlas.store.logins import APPLICATION, OPERATOR, TENANT_ADMIN, Logins
from hlas.store.vault import Vault
from hlas.store.writer import Writer
from hlas.visitors import keys
from hlas.visitors.sessions import Origins
from hlas.visitors.tokens import Tokens

START_SECONDS = 30.0
# Leases last 3 s and streams end within 2 s: their tasks are tried again soon after a failure.
RETRY_SECONDS = 0.5
REAP_SECONDS = 60.0
REAP_PAUSE_SECONDS = 0.05
# Retention is counted in days, so once an hour is often enough.
RETENTION_SECONDS = 3600.0
FIRST_RETENTION_SECONDS = 60.0

_HEAD = migrations.head()


class Services:
    """Limits and tokens exist from the start; what needs the database exists while it is open."""

    database: Database
    operators: Database
    # For leases and streams: short statements that must not wait for long ones.
    live_operators: Database
    tenant_admins: Database
    writer: Writer
    runner: Runner
    origins: Origins
    known_secrets: KnownSecrets
    agent: ModelAgent

    def __init__(self, settings: Settings, database_url: str) -> None:
        self.settings = settings
        self.traffic = Traffic(Watch(settings, self._count_incident))
        self.metrics = Metrics(self.traffic)
        self.background = Background(self.metrics)
        self.tokens = Tokens(
            keys.from_settings(settings), ttl_seconds=settings.widget_session_ttl_minutes * 60
        )
        self.vault = Vault.from_settings(settings)
        # Connects when it is used first.
        self.outbound = OutboundClient.from_settings(settings)
        self.uploads = Uploads()
        self.source_reader = SourceReader(settings.outbound_private_hosts)
        self.limiter = self._make_limiter()
        self.gate = Gate(settings, self.limiter, self.metrics)
        self.readiness = Shared(self._is_ready)
        # Owns runs and tells the other workers what it changes.
        self.worker = str(uuid_utils.uuid4())
        self.live = Live(self.worker)
        self.streams = OpenStreams(settings, self.metrics)
        self.supervisor = Supervisor(settings, self.metrics)
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
        """Connections and background work, for as long as the application serves."""
        logins, settings = self._logins, self.settings
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.outbound.close)
            self.database = await Database.open(
                logins, APPLICATION, size=settings.database_pool_size
            )
            stack.push_async_callback(self.database.close)
            self.operators = await Database.open(logins, OPERATOR, size=4, statement_seconds=30)
            stack.push_async_callback(self.operators.close)
            self.tenant_admins = await Database.open(
                logins, TENANT_ADMIN, size=4, tenant_size=2, statement_seconds=30
            )
            stack.push_async_callback(self.tenant_admins.close)
            await _check_role(self.database, logins.role(APPLICATION))
            await _check_role(self.operators, logins.role(OPERATOR))
            await _check_role(self.tenant_admins, logins.role(TENANT_ADMIN))
            self.origins = Origins(self.database)
            self.known_secrets = KnownSecrets(self.operators)
            self.live_operators = await Database.open(
                logins, OPERATOR, size=LIVE_CONNECTIONS, statement_seconds=LIVE_STATEMENT_SECONDS
            )
            stack.push_async_callback(self.live_operators.close)
            self.agent = await stack.enter_async_context(open_agent(logins, settings, self.metrics))
            self.live.connect(
                self.database,
                self.live_operators,
                lambda digests: sign_ins.find_valid(self.live_operators, digests),
            )
            stack.push_async_callback(self.live.close)
            stack.push_async_callback(self.limiter.aclose)
            stack.push_async_callback(self._flush_traffic)
            stack.callback(self.metrics.hand_over)
            stack.push_async_callback(self.background.close)
            self.writer = Writer(
                logins,
                APPLICATION,
                worker=self.worker,
                on_batch=self.metrics.batch,
                start=self.background.start,
            )
            self.runner = self.writer.listener = Runner(
                self.live, self.writer, self.agent, self.database, self.live_operators, self.metrics
            )
            # In reverse: runs finish, the queue drains, and what is left is released.
            stack.push_async_callback(self.runner.release)
            stack.push_async_callback(self.writer.close)
            stack.push_async_callback(self.runner.finish)
            self._start_background()
            yield

    def _start_background(self) -> None:
        operators, every = self.operators, self.background.every
        hours = self.settings.idempotency_ttl_hours
        every(
            OVERRIDES_SECONDS,
            "limit_overrides",
            lambda: self.gate.load_overrides(operators),
            first=0,
        )
        every(SHARE_SECONDS, "metrics", self.metrics.share)
        every(FLUSH_SECONDS, "traffic", lambda: self.traffic.flush(operators))
        every(FORGET_SECONDS, "traffic_cleanup", lambda: forget(operators), first=FLUSH_SECONDS)
        every(
            REAP_SECONDS,
            "key_cleanup",
            lambda: messages.reap_all_keys(operators, hours, pause=REAP_PAUSE_SECONDS),
        )
        every(
            RETENTION_SECONDS,
            "retention",
            lambda: retention.run(operators),
            first=FIRST_RETENTION_SECONDS,
        )
        every(TICK_SECONDS, "live", self.live.tick, longest_pause=RETRY_SECONDS)
        every(CHECK_SECONDS, "stream_checks", self.live.check, longest_pause=RETRY_SECONDS)
        every(CLEANUP_SECONDS, "live_cleanup", lambda: self.live.clean_up(operators))
        every(RUNS_SECONDS, "runs", self.runner.tick, longest_pause=RETRY_SECONDS)
        every(
            FORGET_RESERVATIONS_SECONDS,
            "reservation_cleanup",
            lambda: forget_reservations(operators, pause=REAP_PAUSE_SECONDS),
        )
        every(MCP_CLEANUP_SECONDS, "mcp_cleanup", self.agent.means.toolbox.clean_up)
        if self.agent.semantic is not None:
            maker = VectorMaker(
                operators,
                self.agent.semantic.embedder,
                self.metrics,
                lambda: self.supervisor.is_holder,
            )
            self.background.start("embedding", self.supervisor.run)
            every(VECTORS_SECONDS, "vectors", maker.tick)

    async def _is_ready(self) -> bool:
        """The database answers and its schema is the one this code needs."""
        try:
            row = await self.database.one("select version_num from alembic_version")
        except (HlasError, asyncpg.PostgresError):
            return False  # unreachable, never migrated, or without the rights to read
        return row is not None and row["version_num"] == _HEAD

    async def _flush_traffic(self) -> None:
        with suppress(HlasError, asyncpg.PostgresError):
            await self.traffic.flush(self.operators)


async def _check_role(database: Database, role: str) -> None:
    """Wait while the database is away: one worker that fails to start would end them all."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while True:
        try:
            return await check_role(database, role)
        except Unavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.1)
