"""Which limits apply to a request, and what happens when one is hit."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from hlas import errors, log
from hlas.http.asgi import Application, Headers, Receive, Scope, Send, header_values, respond
from hlas.limits import Check, Limit, Limiter, MemoryLimiter, Refusal, Rule
from hlas.limits.addresses import client_address, forwarded_by_stranger
from hlas.limits.rules import Scope as LimitScope
from hlas.observe.metrics import Metrics
from hlas.settings import Settings
from hlas.store.db import Database, Queries

queries = Queries.beside(__file__)

SESSION = "/widget/session"
MESSAGES = "/widget/messages"
# A reply may cost money: it is limited like the message it answers, in buckets of its own.
REPLIES = "/widget/messages/assistant"
ADMIN = "/admin"
# Every route that is read without an administrator's key, in one bucket.
READS = "reads"
LIMITED = frozenset({SESSION, MESSAGES, REPLIES})
OVERRIDES_SECONDS = 2.0
# What was found out from a peer and what it forwards; long texts are not worth remembering.
REMEMBERED_ADDRESSES = 20_000
REMEMBERED_CHARACTERS = 200

# What a tenant's `limits` column may hold: its own limits, never those on addresses.
OVERRIDES: dict[str, tuple[LimitScope, tuple[str, ...]]] = {
    "session_tenant": ("tenant", (SESSION,)),
    "messages_tenant": ("tenant", (MESSAGES, REPLIES)),
    "messages_conversation": ("conversation", (MESSAGES, REPLIES)),
}


class Rules(NamedTuple):
    """What is limited on one route; the order is that of the contract."""

    ip: Rule | None = None
    conversation: Rule | None = None
    tenant: Rule | None = None


class Gate:
    def __init__(self, settings: Settings, limiter: Limiter, metrics: Metrics) -> None:
        self._limiter = limiter
        self._local = limiter if isinstance(limiter, MemoryLimiter) else None
        self._metrics = metrics
        self._enforce = settings.rate_limit_enforce
        self._trusted = settings.trusted_proxies
        self._rules = {
            SESSION: Rules(
                ip=_rule(SESSION, "ip", settings.rate_limit_session_ip),
                tenant=_rule(SESSION, "tenant", settings.rate_limit_session_tenant),
            ),
            ADMIN: Rules(ip=_rule(ADMIN, "ip", settings.rate_limit_admin_denied_ip)),
            READS: Rules(ip=_rule(READS, "ip", settings.rate_limit_reads_ip)),
        }
        self._admin_key = _rule(ADMIN, "key", settings.rate_limit_admin_key)
        for route in (MESSAGES, REPLIES):
            self._rules[route] = Rules(
                _rule(route, "ip", settings.rate_limit_messages_ip),
                _rule(route, "conversation", settings.rate_limit_messages_conversation),
                _rule(route, "tenant", settings.rate_limit_messages_tenant),
            )
        # A dry run tells of a refusal once, when the limits are consumed: there is nothing to see.
        self._on_address = {
            route: rules.ip for route, rules in self._rules.items() if settings.rate_limit_enforce
        }
        self._by_tenant: dict[str, dict[str, Rules]] = {}
        self._warned: set[str] = set()
        self._addresses: dict[tuple[str | None, str], str | None] = {}

    async def admit(
        self, scope: Scope, route: str, tenant_id: str = "", conversation_id: str = ""
    ) -> None:
        """Consume every limit that applies, or raise; without a tenant, the address's alone."""
        checks = self._checks(route, self.address(scope), tenant_id, conversation_id)
        if checks:
            refusal = await self._limiter.consume(checks)
            if refusal is not None:
                self._refuse(refusal, route)

    def admit_now(
        self, route: str, address: str | None, tenant_id: str, conversation_id: str
    ) -> bool:
        """Consume every limit that applies without waiting, or say no and consume nothing."""
        checks = self._checks(route, address, tenant_id, conversation_id)
        return self._local is not None and self._local.consume_now(checks) is None

    @property
    def is_local(self) -> bool:
        """The limits are in this process, so that nothing has to be waited for."""
        return self._local is not None

    def _checks(
        self, route: str, address: str | None, tenant_id: str, conversation_id: str
    ) -> list[Check]:
        ip, conversation, tenant = self._by_tenant.get(tenant_id, self._rules)[route]
        checks: list[Check] = []
        if ip is not None and address:
            checks.append((ip, address))
        if conversation is not None and conversation_id:
            checks.append((conversation, conversation_id))
        if tenant is not None and tenant_id:
            checks.append((tenant, tenant_id))
        return checks

    async def admit_read(self, scope: Scope) -> None:
        """Consume the limit of an address on what it reads, or raise."""
        checks = self._checks(READS, self.address(scope), "", "")
        refusal = await self._limiter.consume(checks) if checks else None
        if refusal is not None:
            self._refuse(refusal, log.route_of(scope))

    async def admit_key(self, key_id: str) -> None:
        """Consume the limit of an administrator's key, or raise."""
        if self._admin_key is not None:
            refusal = await self._limiter.consume(((self._admin_key, key_id),))
            if refusal is not None:
                self._refuse(refusal, ADMIN)

    async def look(self, scope: Scope, route: str) -> Refusal | None:
        """Before any SQL: whether an address has used up its limit."""
        address = self.address(scope)
        # Opening a session asks the database for its tenant before the limits are consumed; for
        # the others nothing comes between, so what this process remembers is enough.
        if route != SESSION:
            return self.look_now(route, address)
        rule = self._on_address.get(route)
        if rule is None or address is None:
            return None
        return await self._limiter.peek(((rule, address),))

    def look_now(self, route: str, address: str | None) -> Refusal | None:
        """The same from what this process knows: None may mean that it does not know."""
        rule = self._on_address.get(route)
        if rule is None or address is None:
            return None
        return self._limiter.peek_now(((rule, address),))

    async def require_room(self, scope: Scope, route: str) -> None:
        """Before any SQL: raise if an address has used up its limit."""
        refusal = await self.look(scope, route)
        if refusal is not None:
            self._refuse(refusal, route)

    def _refuse(self, refusal: Refusal, route: str) -> None:
        scope = refusal.rule.scope
        if self._enforce:
            raise errors.RateLimited(scope, refusal.headers())
        log.warning("blocked", reason="rate_limited", scope=scope, route=route, enforced=False)
        self._metrics.blocked("rate_limited_dry_run", scope, route)

    def address(self, scope: Scope) -> str | None:
        peer = scope["client"][0] if scope.get("client") else None
        return self.address_of(peer, header_values(scope, b"x-forwarded-for"))

    def address_of(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """Whose requests these are counted as."""
        known = peer, ",".join(forwarded)
        try:
            return self._addresses[known]
        except KeyError:
            address = self._find_address(peer, forwarded)
        if len(known[1]) <= REMEMBERED_CHARACTERS:
            if len(self._addresses) >= REMEMBERED_ADDRESSES:
                self._addresses.clear()
            self._addresses[known] = address
        return address

    def _find_address(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """What looks misconfigured is said once."""
        if forwarded_by_stranger(peer, forwarded, self._trusted):
            self._warn_once("forwarded_for_untrusted", hint="set TRUSTED_PROXIES to your proxy")
        address = client_address(peer, forwarded, self._trusted)
        if address is None:
            self._warn_once("client_address_unknown", hint="limits by address do not apply")
        return address

    def seen(self, scope: Scope) -> dict[str, Any]:
        """How a request looks from here, for the doctor."""
        peer = scope["client"][0] if scope.get("client") else None
        forwarded = header_values(scope, b"x-forwarded-for")
        return {
            "peer": peer,
            "forwarded_for": forwarded,
            "trusted": bool(peer) and self._trusted.trust(peer),
            "address": client_address(peer, forwarded, self._trusted),
        }

    def _warn_once(self, event: str, **fields: str) -> None:
        if event not in self._warned:
            self._warned.add(event)
            log.warning(event, **fields)

    async def follow_overrides(self, operators: Database) -> None:
        """Keep tenants' own limits current, within seconds and without a restart."""
        while True:
            try:
                await self.load_overrides(operators)
            except (errors.Unavailable, asyncpg.PostgresError):
                pass  # the limits last known hold until the database is back
            await asyncio.sleep(OVERRIDES_SECONDS)

    async def load_overrides(self, operators: Database) -> None:
        rows = await operators.all(queries.limit_overrides)
        self._by_tenant = {row["id"]: self._overridden(row["limits"]) for row in rows}

    def _overridden(self, limits: Mapping[str, Any]) -> dict[str, Rules]:
        rules = dict(self._rules)
        for name, text in limits.items():
            if name in OVERRIDES:
                scope, routes = OVERRIDES[name]
                try:
                    limit = Limit.parse(str(text))
                except ValueError:
                    self._warn_once("limit_override_invalid", hint=name)
                    continue
                for route in routes:
                    rules[route] = rules[route]._replace(**{scope: _rule(route, scope, limit)})
        return rules


class AddressLimitMiddleware:
    """The cheapest refusal: by address, from memory, before anything else is looked at."""

    def __init__(
        self, app: Application, gate: Gate, metrics: Metrics, cors: Callable[[Scope], Headers]
    ) -> None:
        self.app = app
        self.gate = gate
        self.metrics = metrics
        self.cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in LIMITED:
            refusal = await self.gate.look(scope, scope["path"])
            if refusal is not None:
                await self._refuse(refusal, scope, send)
                return
        await self.app(scope, receive, send)

    async def _refuse(self, refusal: Refusal, scope: Scope, send: Send) -> None:
        error = errors.RateLimited(refusal.rule.scope, refusal.headers())
        note_blocked(self.metrics, error.limit_scope, scope["path"])
        status, headers, body = errors.render(error, log.request_id())
        await respond(send, status, [*headers, *self.cors(scope)], body)


def note_blocked(metrics: Metrics, scope: str, route: str) -> None:
    """The one log event and count of a request over a limit."""
    reason = errors.RateLimited.code
    log.warning("blocked", reason=reason, scope=scope, route=route)
    metrics.blocked(reason, scope, route)


def _rule(route: str, scope: LimitScope, limit: Limit | None) -> Rule | None:
    return Rule(scope, route, limit) if limit else None
