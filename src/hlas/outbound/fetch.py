"""Fetches an address that an operator named, bounded in time, size and destination."""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urljoin

import httptools

from hlas.outbound.destinations import Destination, is_public
from hlas.visitors.origins import Origin

# In total, for DNS, redirects and the body.
SECONDS = 10.0
# What is read of an answer, and how much of it may be its head.
LARGEST = 2 * 2**20
LARGEST_HEAD = 64 * 2**10
MOST_REDIRECTS = 5

_REDIRECTS = {301, 302, 303, 307, 308}


class Unreachable(Exception):
    """An address did not respond; the message says why."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response, and the address it came from after all redirects."""

    url: str
    status: int
    headers: Message
    body: bytes


async def fetch(
    url: str, *, method: str = "GET", follow: bool = False, until: bytes = b"", **headers: str
) -> Fetched:
    """Send one request without a proxy; with `follow`, follow up to 5 redirects.

    With `until`, the body is read only until it contains this, as that of a stream has no end.
    The operator may name an address in their own network, but a redirect from a public address
    must not lead there.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    public_only = False
    try:
        async with asyncio.timeout(SECONDS):
            for _ in range(MOST_REDIRECTS + 1):
                destination = Destination.parse(url)
                if destination is None:
                    raise Unreachable(
                        "it redirects to something that is not an http or https address"
                    )
                fetched, peer = await _ask(
                    destination, method, named, until=until, public_only=public_only
                )
                location = fetched.headers.get("Location")
                if not follow or fetched.status not in _REDIRECTS or not location:
                    return fetched
                public_only = public_only or is_public(peer)
                url = urljoin(fetched.url, location)
    except TimeoutError:
        raise Unreachable(f"no complete answer within {SECONDS:.0f} s") from None
    except OSError as error:
        raise Unreachable(error.strerror or str(error)) from None
    except (ValueError, httptools.HttpParserError):
        raise Unreachable("it does not answer in HTTP") from None
    raise Unreachable(f"it redirects more than {MOST_REDIRECTS} times")


async def _ask(
    destination: Destination,
    method: str,
    headers: dict[str, str],
    *,
    until: bytes,
    public_only: bool,
) -> tuple[Fetched, str]:
    """Return the response and the IP address of the server."""
    origin = destination.origin
    headers = {
        "Host": str(origin).partition("://")[2],
        "User-Agent": "hlas-doctor",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
    }
    lines = [
        f"{method} {destination.target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    reader, writer, peer = await _connect(origin, public_only=public_only)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await _read(reader, until)
    finally:
        writer.transport.abort()
    fetched = Fetched(str(destination), answer.status, answer.headers, bytes(answer.body))
    return fetched, peer


async def _connect(
    origin: Origin, *, public_only: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """Resolve once and connect to the checked address, so that the name cannot change."""
    host = origin.host.strip("[]")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, origin.port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]) for one in found]
    if public_only and not all(is_public(one) for one in addresses):
        raise Unreachable(f"it redirects from a public address to {host}, which is not public")
    context = ssl.create_default_context() if origin.scheme == "https" else None
    name = host if context else None
    failure: OSError = OSError("the name has no address")
    for address in addresses:
        try:
            reader, writer = await asyncio.open_connection(
                address, origin.port, ssl=context, server_hostname=name
            )
        except OSError as error:
            failure = error
        else:
            return reader, writer, address
    raise failure


class _Answer:
    """Collects the parser's callbacks into a response."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers = Message()
        self.body = bytearray()
        self.is_complete = False

    def on_message_begin(self) -> None:
        if not self.is_complete:
            self.headers = Message()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        # Interim responses (100, 103) precede the final one.
        status = self.parser.get_status_code()
        self.status = status if status >= 200 else 0

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0


async def _read(reader: asyncio.StreamReader, until: bytes) -> _Answer:
    answer, received = _Answer(), 0
    while not answer.is_complete and received < LARGEST:
        # A compressed body is not searched.
        if until and (until in answer.body or "Content-Encoding" in answer.headers):
            break
        data = await reader.read(65536)
        received += len(data)
        if not data or (not answer.status and received > LARGEST_HEAD):
            break
        try:
            answer.parser.feed_data(data)
        except httptools.HttpParserError:
            # Ignore whatever follows a complete response.
            if not answer.is_complete:
                raise
    if not answer.status:
        raise Unreachable("it closed the connection, or sent too much, before it answered")
    return answer
