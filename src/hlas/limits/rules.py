"""Limits, the rules that apply them to keys, and the headers of a refusal."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

Scope = Literal["ip", "tenant", "conversation", "key"]

NANOSECONDS = 1_000_000_000
# Slots per window: more slots are more precise and use more memory on busy keys.
SLOTS = 60

# Limits that a tenant can override; never those of addresses.
OVERRIDES = ("session_tenant", "messages_tenant", "messages_conversation")

_LIMIT = re.compile(r"([0-9]{1,10})\s*/\s*([a-z]+)")
_SECONDS = {
    "s": 1,
    "second": 1,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "day": 86400,
}
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` requests in any window of `seconds`, wherever it starts."""

    count: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> "Limit | None":
        """Read `30/min`; `off` is None."""
        plain = text.strip().lower()
        if plain == "off":
            return None
        match = _LIMIT.fullmatch(plain)
        seconds = _SECONDS.get(match[2]) if match else None
        if match is None or seconds is None:
            raise ValueError(f"{text!r} is not a limit: write N/s, N/min, N/h or N/day, or off")
        count = int(match[1])
        if not 1 <= count <= _MOST:
            raise ValueError(
                f"{text!r} is not a limit: N must be from 1 to {_MOST}; off means no limit"
            )
        return cls(count, seconds)

    def __str__(self) -> str:
        unit = {1: "s", 60: "min", 3600: "h", 86400: "day"}.get(self.seconds, f"{self.seconds}s")
        return f"{self.count}/{unit}"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A limit on one route for one kind of key. Create it once, not per request."""

    scope: Scope
    route: str
    limit: Limit
    # Without the count, so that usage is kept when a tenant's limit changes.
    table: str = field(init=False, repr=False)
    count: int = field(init=False, repr=False)
    window: int = field(init=False, repr=False)
    slot: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        window = self.limit.seconds * NANOSECONDS
        set_field = object.__setattr__
        set_field(self, "table", f"{self.scope}:{self.route}:{self.limit.seconds}")
        set_field(self, "count", self.limit.count)
        set_field(self, "window", window)
        # Rounded up, so that a window never touches more than SLOTS + 1 slots.
        set_field(self, "slot", -(-window // SLOTS))


# A plain tuple, because it is built for every request.
Check: TypeAlias = tuple[Rule, str]


@dataclass(slots=True)
class Refusal:
    """The limit that was hit; of several, the one with the longest wait."""

    rule: Rule
    key: str = field(repr=False)
    retry_after: int

    @classmethod
    def after(cls, check: Check, wait: int) -> "Refusal":
        """`wait` is in nanoseconds."""
        return cls(check[0], check[1], max(1, -(-wait // NANOSECONDS)))

    def headers(self) -> dict[str, str]:
        """Retry-After, and the fields of draft-ietf-httpapi-ratelimit-headers.

        A tenant's limit is shared by all its visitors, who must not learn its figures.
        """
        headers = {"Retry-After": str(self.retry_after)}
        if self.rule.scope != "tenant":
            limit = self.rule.limit
            headers["RateLimit-Policy"] = f'"{self.rule.scope}";q={limit.count};w={limit.seconds}'
            headers["RateLimit"] = f'"{self.rule.scope}";r=0;t={self.retry_after}'
        return headers


class Limiter(Protocol):
    """Implemented in memory and in Redis; awaiting a ready result costs only about 0.1 us."""

    async def consume(self, checks: Sequence[Check]) -> Refusal | None:
        """Consume all limits, or none of them if one is hit."""
        ...

    async def peek(self, checks: Sequence[Check]) -> Refusal | None:
        """Return what consume would return, without consuming."""
        ...

    async def aclose(self) -> None: ...
