"""The clients of one worker: one for each server, its tools remembered for a minute."""

import asyncio
import time
from dataclasses import dataclass, field

from hlas import log
from hlas.agent.tools.mcp.client import Client, Listing
from hlas.agent.tools.mcp.http import HttpTransport
from hlas.agent.tools.mcp.protocol import CallResult, Json, McpError, RemoteTool
from hlas.agent.tools.mcp.servers import Endpoint
from hlas.agent.tools.mcp.stdio import StdioTransport
from hlas.outbound.client import OutboundClient

LISTING_SECONDS = 60.0
# A server that is down is not asked again, and delays no answer, for this long.
FAILURE_SECONDS = 10.0
# The time to list a server's tools, before the model is asked.
LIST_SECONDS = 3.0
# Longer than any answer takes, so that no call loses its client.
IDLE_SECONDS = 600.0
CLEANUP_SECONDS = 60.0
MOST_CLIENTS = 200


def connect(endpoint: Endpoint, outbound: OutboundClient) -> Client:
    if endpoint.command:
        return Client(StdioTransport(endpoint.command), handshake_first=True)
    transport = HttpTransport(outbound, endpoint.url, endpoint.headers)
    return Client(transport, handshake_first=False)


@dataclass(slots=True)
class _Known:
    """What a worker knows of a server."""

    endpoint: Endpoint
    client: Client
    listing: Listing | None = None
    failure: McpError | None = None
    fresh_until: float = 0.0
    used_at: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pool:
    def __init__(self, outbound: OutboundClient) -> None:
        self._outbound = outbound
        self._known: dict[tuple[str, str], _Known] = {}
        self._is_closed = False

    async def list_tools(self, endpoint: Endpoint) -> Listing:
        """The tools of the last minute, or older ones while the server is down; else McpError."""
        known = await self._find(endpoint)
        async with known.lock:
            if time.monotonic() >= known.fresh_until:
                await self._refresh(known)
        if known.listing is None:
            assert known.failure is not None
            # A new one: raised again and again, an error collects tracebacks.
            raise McpError(known.failure.code, str(known.failure))
        return known.listing

    async def call(
        self, endpoint: Endpoint, tool: RemoteTool, arguments: Json, seconds: float
    ) -> CallResult:
        """Call a tool of a server whose tools were listed; McpError if it is gone since."""
        known = self._known.get((endpoint.tenant_id, endpoint.name))
        if known is None or known.endpoint != endpoint:
            # An answer under way must not start a program again that was ended meanwhile.
            raise McpError("removed", "the server was removed or changed")
        known.used_at = time.monotonic()
        return await known.client.call(tool, arguments, seconds)

    async def keep_only(self, tenant_id: str, names: set[str]) -> None:
        """Close the clients of servers that the tenant no longer has or allows."""
        gone = [key for key in self._known if key[0] == tenant_id and key[1] not in names]
        await _close([self._known.pop(key) for key in gone])

    async def clean_up(self) -> None:
        """Close the clients that nobody has used for a while."""
        now = time.monotonic()
        idle = [key for key, one in self._known.items() if now - one.used_at > IDLE_SECONDS]
        await _close([self._known.pop(key) for key in idle])

    async def close(self) -> None:
        self._is_closed = True
        known = list(self._known.values())
        self._known.clear()
        await _close(known)

    async def _refresh(self, known: _Known) -> None:
        try:
            known.listing = await known.client.list_tools(LIST_SECONDS)
        except TimeoutError:
            known.failure = McpError("timeout", f"no answer within {LIST_SECONDS:g} s")
        except McpError as error:
            known.failure = error
        except Exception as error:  # noqa: BLE001  # no server may end an answer
            known.failure = McpError(type(error).__name__, "the server cannot be used")
        else:
            known.failure = None
        if known.failure is not None:
            endpoint, reason = known.endpoint, known.failure.code
            log.warning(
                "mcp_failed", tenant_id=endpoint.tenant_id, server=endpoint.name, reason=reason
            )
        seconds = LISTING_SECONDS if known.failure is None else FAILURE_SECONDS
        known.fresh_until = time.monotonic() + seconds

    async def _find(self, endpoint: Endpoint) -> _Known:
        if self._is_closed:
            raise McpError("closed", "the server is no longer used")
        key, now = (endpoint.tenant_id, endpoint.name), time.monotonic()
        known = self._known.get(key)
        if known is None or known.endpoint != endpoint:
            old = self._pop_surplus()
            if key in self._known:
                old.append(self._known.pop(key))
            known = self._known[key] = _Known(endpoint, connect(endpoint, self._outbound))
            await _close(old)
        known.used_at = now
        return known

    def _pop_surplus(self) -> list[_Known]:
        """Those that were not used for longest, to make room for one more."""
        by_age = sorted(self._known, key=lambda key: self._known[key].used_at)
        surplus = max(0, len(by_age) - MOST_CLIENTS + 1)
        return [self._known.pop(key) for key in by_age[:surplus]]


async def _close(known: list[_Known]) -> None:
    """All at once: each may take a second."""
    await asyncio.gather(*(one.client.close() for one in known))
