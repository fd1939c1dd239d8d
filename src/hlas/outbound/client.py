"""Requests to addresses that tenants name: https, public hosts, bounded in size and time.

Every address that is connected to is checked when its socket is made. A check of the name before
would not do: the name may resolve to another address a moment later.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import aiohttp

from hlas.outbound.destinations import Destination, is_private_host, is_public
from hlas.settings import Settings
from hlas.visitors.origins import Origin

# Uvicorn and others close idle connections after 5 s; one that is about to close is not used.
KEEPALIVE_SECONDS = 3.0
CONNECT_SECONDS = 5.0
MOST_CONNECTIONS = 500
# A slow server of one tenant must not use up the connections of all.
MOST_TO_ONE_HOST = 20

_AddressInfo: TypeAlias = tuple[
    int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]
]


class OutboundError(Exception):
    """A request failed. `code` is static, for logs; the message is one line for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _PrivateAddress(OSError):
    """The name resolves to an address that tenants must not reach."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "not a public address")


class Response:
    """The head of a response. Its body is read in pieces, up to `largest` bytes."""

    def __init__(self, response: aiohttp.ClientResponse, largest: int) -> None:
        self._response = response
        self._left = largest
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._response.content.iter_any():
            self._left -= len(piece)
            if self._left < 0:
                raise OutboundError("too_large", "it sends more than is accepted")
            yield piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])


class OutboundClient:
    """No redirects, no proxy of the environment, no cookies, nothing compressed."""

    def __init__(self, private_hosts: frozenset[str] = frozenset()) -> None:
        # Hosts, or host:port, that the operator allows although they are private; http too.
        self._private_hosts = private_hosts
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> "OutboundClient":
        return cls(frozenset(settings.outbound_private_hosts))

    def require(self, url: str) -> Destination:
        """The destination of an address that may be used; raises OutboundError for others."""
        destination = Destination.parse(url)
        if destination is None:
            raise OutboundError("invalid_url", "it is not an https address")
        if destination.origin.scheme != "https" and not self._is_private(destination.origin):
            raise OutboundError("not_https", "only https addresses are allowed")
        return destination

    def require_public(self, url: str) -> Destination:
        """Like `require`; also refuses what no connection is needed for to know that it is private.

        It only tells the user early: what counts is the address that a socket connects to.
        """
        destination = self.require(url)
        origin = destination.origin
        if is_private_host(origin.host) and not self._is_private(origin):
            raise OutboundError("private_address", "it is not at a public address")
        return destination

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        seconds: float,
        largest: int,
        as_is: bool = False,
    ) -> AsyncIterator[Response]:
        """Send one request, never again. `seconds` includes the time to read the body.

        With `as_is`, redirects and compressed answers are returned rather than refused.
        """
        destination = self.require(url)
        session = self._session(is_private=self._is_private(destination.origin))
        try:
            async with (
                asyncio.timeout(seconds),
                session.request(
                    method,
                    str(destination),
                    headers={**headers, "Accept-Encoding": "identity"},
                    data=body,
                    allow_redirects=False,
                ) as response,
            ):
                if not as_is:
                    _check(response)
                yield Response(response, largest)
        except TimeoutError:
            raise OutboundError("timeout", f"no complete answer within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _explain(error) from None

    def _is_private(self, origin: Origin) -> bool:
        return not self._private_hosts.isdisjoint({origin.host, f"{origin.host}:{origin.port}"})

    def _session(self, *, is_private: bool) -> aiohttp.ClientSession:
        """Sockets of hosts that may be private are made and kept apart from all others."""
        if is_private not in self._sessions:
            connector = aiohttp.TCPConnector(
                limit=MOST_CONNECTIONS,
                limit_per_host=MOST_TO_ONE_HOST,
                keepalive_timeout=KEEPALIVE_SECONDS,
                socket_factory=_make_socket if is_private else _make_public_socket,
            )
            self._sessions[is_private] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                auto_decompress=False,
                trust_env=False,
                headers={"User-Agent": "hlas"},
            )
        return self._sessions[is_private]

    async def close(self) -> None:
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()


def _make_socket(info: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)


def _make_public_socket(info: _AddressInfo) -> socket.socket:
    if not is_public(str(info[4][0])):
        raise _PrivateAddress
    return _make_socket(info)


def _check(response: aiohttp.ClientResponse) -> None:
    if 300 <= response.status < 400:
        raise OutboundError("redirect", "it redirects, which is not followed")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise OutboundError("compressed", "it sends a compressed answer")


def _explain(error: Exception) -> OutboundError:
    """Say what went wrong without the library's message, which quotes the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _PrivateAddress):
            return OutboundError("private_address", "it is not at a public address")
        cause = cause.__cause__
    match error:
        case aiohttp.ClientSSLError():
            return OutboundError("tls", "its certificate or TLS is not valid")
        case aiohttp.ClientConnectorDNSError():
            return OutboundError("no_such_host", "its name does not resolve")
        case aiohttp.ClientConnectorError():
            return OutboundError("unreachable", "it does not accept connections")
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return OutboundError("not_http", "it does not answer in HTTP")
        case _:
            return OutboundError("cut", "it closed the connection")
