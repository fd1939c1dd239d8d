"""Which limits apply to a request, and what happens when one is hit."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hlas import errors, log
from hlas.limits import Check, Limit, Limiter, Refusal, Rule
from hlas.limits.addresses import client_address, has_untrusted_forwarding
from hlas.limits.rules import OVERRIDES
from hlas.limits.rules import Scope as LimitScope
from hlas.observe.metrics import Metrics
from hlas.settings import Settings
from hlas.store.db import Database, Queries

queries = Queries.beside(__file__)

SESSION = "/widget/session"
MESSAGES = "/widget/messages"
# A reply may cost money: it is limited like the message it answers, in buckets of its own.
REPLIES = "/widget/messages/assistant"
# Asking for a person, contacts and ratings: limited like messages, in buckets of their own, so that
# who has sent as many as allowed may still ask for help.
PEOPLE = "people"
ADMIN = "/admin"
# Every route that is read without an administrator's key, in one bucket.
READS = "reads"
OVERRIDES_SECONDS = 2.0
# What was found out from a peer and what it forwards; long texts are not worth remembering.
REMEMBERED_ADDRESSES = 20_000
REMEMBERED_CHARACTERS = 200

# The buckets that each of a tenant's own limits is for.
_OVERRIDDEN: dict[str, tuple[LimitScope, tuple[str, ...]]] = {
    "session_tenant": ("tenant", (SESSION,)),
    "messages_tenant": ("tenant", (MESSAGES, REPLIES, PEOPLE)),
    "messages_conversation": ("conversation", (MESSAGES, REPLIES, PEOPLE)),
}
assert set(_OVERRIDDEN) == set(OVERRIDES)


class Caller(Protocol):
    """A request, as far as limits are concerned."""

    peer: str
    address: str | None
    route: str

    def values(self, name: bytes) -> Sequence[str]: ...


class Rules(NamedTuple):
    """What is limited on one route; the order is that of the contract."""

    ip: Rule | None = None
    conversation: Rule | None = None
    tenant: Rule | None = None


class Gate:
    def __init__(self, settings: Settings, limiter: Limiter, metrics: Metrics) -> None:
        self._limiter = limiter
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
        for route in (MESSAGES, REPLIES, PEOPLE):
            self._rules[route] = Rules(
                _rule(route, "ip", settings.rate_limit_messages_ip),
                _rule(route, "conversation", settings.rate_limit_messages_conversation),
                _rule(route, "tenant", settings.rate_limit_messages_tenant),
            )
        self._by_tenant: dict[str, dict[str, Rules]] = {}
        self._warned: set[str] = set()
        self._addresses: dict[tuple[str | None, str], str | None] = {}

    async def consume(
        self, caller: Caller, bucket: str, tenant_id: str = "", conversation_id: str = ""
    ) -> None:
        """Consume every limit that applies, or raise; without a tenant, the address's alone."""
        checks = self._checks(bucket, self.find_address(caller), tenant_id, conversation_id)
        if checks:
            refusal = await self._limiter.consume(checks)
            if refusal is not None:
                self._refuse(refusal, caller.route)

    async def require_room(self, caller: Caller, bucket: str) -> None:
        """Before any SQL: raise if an address is over its limit."""
        rule, address = self._rules[bucket].ip, self.find_address(caller)
        # In a dry run a refusal is logged once, when the limits are consumed.
        if rule is not None and address is not None and self._enforce:
            refusal = await self._limiter.peek(((rule, address),))
            if refusal is not None:
                self._refuse(refusal, caller.route)

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

    async def consume_key(self, key_id: str) -> None:
        """Consume the limit of an administrator's key, or raise."""
        if self._admin_key is not None:
            refusal = await self._limiter.consume(((self._admin_key, key_id),))
            if refusal is not None:
                self._refuse(refusal, ADMIN)

    def _refuse(self, refusal: Refusal, route: str) -> None:
        scope = refusal.rule.scope
        if self._enforce:
            raise errors.RateLimited(scope, refusal.headers())
        log.warning("blocked", reason="rate_limited", scope=scope, route=route, enforced=False)
        self._metrics.blocked("rate_limited_dry_run", scope, route)

    def find_address(self, caller: Caller) -> str | None:
        """Whose requests these are counted as."""
        if caller.address is not None:
            return caller.address
        peer, forwarded = caller.peer or None, caller.values(b"x-forwarded-for")
        known = peer, ",".join(forwarded)
        if known in self._addresses:
            caller.address = self._addresses[known]
            return caller.address
        caller.address = self._find_address(peer, forwarded)
        if len(known[1]) <= REMEMBERED_CHARACTERS:
            if len(self._addresses) >= REMEMBERED_ADDRESSES:
                self._addresses.clear()
            self._addresses[known] = caller.address
        return caller.address

    def _find_address(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """Log each misconfiguration once."""
        if has_untrusted_forwarding(peer, forwarded, self._trusted):
            self._warn_once("forwarded_for_untrusted", hint="set TRUSTED_PROXIES to your proxy")
        address = client_address(peer, forwarded, self._trusted)
        if address is None:
            self._warn_once("client_address_unknown", hint="limits by address do not apply")
        return address

    def seen(self, caller: Caller) -> dict[str, Any]:
        """How a request looks from here, for the doctor."""
        peer, forwarded = caller.peer or None, caller.values(b"x-forwarded-for")
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

    async def load_overrides(self, operators: Database) -> None:
        rows = await operators.all(queries.limit_overrides)
        self._by_tenant = {row["id"]: self._overridden(row["limits"]) for row in rows}

    def _overridden(self, limits: Mapping[str, Any]) -> dict[str, Rules]:
        rules = dict(self._rules)
        for name, text in limits.items():
            if name in _OVERRIDDEN:
                scope, routes = _OVERRIDDEN[name]
                try:
                    limit = Limit.parse(str(text))
                except ValueError:
                    self._warn_once("limit_override_invalid", hint=name)
                    continue
                for route in routes:
                    rules[route] = rules[route]._replace(**{scope: _rule(route, scope, limit)})
        return rules


def _rule(route: str, scope: LimitScope, limit: Limit | None) -> Rule | None:
    return Rule(scope, route, limit) if limit else None
