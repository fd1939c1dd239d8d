"""Requests to addresses that tenants name reach public hosts only, and are bounded."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from factories import make_settings
from hlas.outbound.client import OutboundClient, OutboundError
from web_servers import raw_server

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def website(handler: Handler) -> AsyncIterator[str]:
    """A server on loopback; yields its host and port."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Counter:
    """Answers every request, and counts them."""

    def __init__(self) -> None:
        self.asked: list[web.BaseRequest] = []

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.asked.append(request)
        return web.Response(text="hello", headers={"Set-Cookie": "a=b"})


@pytest_asyncio.fixture
async def make_client() -> AsyncIterator[Callable[..., OutboundClient]]:
    made: list[OutboundClient] = []

    def make(*hosts: str) -> OutboundClient:
        made.append(OutboundClient(frozenset(hosts)))
        return made[-1]

    yield make
    for client in made:
        await client.close()


async def fetch(
    client: OutboundClient, url: str, *, seconds: float = 20, largest: int = 1000
) -> bytes:
    async with client.request(
        "POST", url, headers={}, body=b"{}", seconds=seconds, largest=largest
    ) as response:
        return await response.read()


async def fail(client: OutboundClient, url: str, **limits: Any) -> str:
    with pytest.raises(OutboundError) as raised:
        await fetch(client, url, **limits)
    return raised.value.code


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:7f00:1]"])
async def test_own_host(make_client: Any, host: str) -> None:
    """Edge case 65: loopback is refused before a byte is sent, however it is spelt."""
    counter = Counter()
    async with website(counter) as place:
        port = place.partition(":")[2]
        assert await fail(make_client(), f"https://{host}:{port}/") == "private_address"
    assert counter.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["100.64.0.1"],
        ["fd00::1"],
        ["::ffff:10.0.0.1"],
        ["192.168.1.1", "10.0.0.1", "127.0.0.1"],
    ],
)
async def test_name_of_a_private_address(
    make_client: Any, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """Edge case 65: a public name that resolves to private addresses is refused at the socket."""

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == "tools.example.com"
        return [
            (
                socket.AF_INET6 if ":" in one else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (one, port, 0, 0) if ":" in one else (one, port),
            )
            for one in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert await fail(make_client(), "https://tools.example.com/mcp") == "private_address"


async def test_every_address_is_checked(make_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a public and a private address: only the public one is ever connected to."""
    tried: list[str] = []
    loop = asyncio.get_running_loop()

    async def connect(sock: socket.socket, address: Any) -> None:
        tried.append(address[0])
        raise ConnectionRefusedError

    def resolve(_: str, port: int, *__: Any, **___: Any) -> list[Any]:
        both = ("127.0.0.1", "8.8.8.8")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in both]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(loop, "sock_connect", connect, raising=False)
    await fail(make_client(), "https://tools.example.com/mcp")
    assert set(tried) == {"8.8.8.8"}


async def test_http(make_client: Any) -> None:
    """Http is refused, unless the operator lists the host, or the host with this port."""
    counter = Counter()
    async with website(counter) as place:
        url = f"http://{place}/"
        assert await fail(make_client(), url) == "not_https"
        assert await fail(make_client("127.0.0.1:1", "other"), url) == "not_https"
        assert counter.asked == []
        assert await fetch(make_client(place), url) == b"hello"
        assert await fetch(make_client("127.0.0.1"), url) == b"hello"


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "https://a@b.example/", "//a.example", "https://2130706433/", ""]
)
async def test_invalid(make_client: Any, url: str) -> None:
    """Anything but a plain https address is refused."""
    assert await fail(make_client(), url) == "invalid_url"


async def test_redirect(make_client: Any) -> None:
    """Edge case 65: a redirect is an error and not followed."""
    counter = Counter()

    async def redirect(_: web.BaseRequest) -> web.Response:
        return web.Response(status=307, headers={"Location": f"http://{target}/"})

    async with website(counter) as target, website(redirect) as place:
        client = make_client("127.0.0.1")
        assert await fail(client, f"http://{place}/") == "redirect"
    assert counter.asked == []


async def test_environment(make_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy of the environment is not used; cookies are not kept."""
    proxy, counter = Counter(), Counter()
    async with website(proxy) as elsewhere, website(counter) as place:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://{elsewhere}")
            monkeypatch.setenv(name.upper(), f"http://{elsewhere}")
        monkeypatch.delenv("no_proxy", raising=False)
        client = make_client(place)
        for _ in range(2):
            assert await fetch(client, f"http://{place}/") == b"hello"
    assert proxy.asked == []
    assert [request.headers.get("Cookie") for request in counter.asked] == [None, None]


async def test_size_and_time(make_client: Any) -> None:
    """Edge case 65: an endless answer ends at the limit of size, a slow one at that of time."""
    client = make_client("127.0.0.1")
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    async with raw_server(head, endless=b"x" * 1000) as url:
        assert await fail(client, url, largest=100_000) == "too_large"
    async with raw_server(head, endless=b"x") as url:
        assert await fail(client, url, seconds=0.5) == "timeout"
    async with raw_server(head, b"x" * 1001) as url:
        assert await fail(client, url, largest=1000) == "too_large"
    async with raw_server(head, b"x" * 1000) as url:
        assert await fetch(client, url, largest=1000) == b"x" * 1000


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ((b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", b"x"), "compressed"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"x"), "not_http"),
        ((b"garbage\r\n\r\n",), "not_http"),
        ((b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 100_000 + b"\r\n\r\n",), "not_http"),
        ((), "cut"),
    ],
)
async def test_broken_servers(make_client: Any, pieces: tuple[bytes, ...], code: str) -> None:
    """Compressed, cut and malformed answers are errors with a code for the log."""
    async with raw_server(*pieces) as url:
        assert await fail(make_client("127.0.0.1"), url) == code


async def test_no_tls(make_client: Any) -> None:
    """A server that does not speak TLS is an error."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await fail(make_client("127.0.0.1"), f"https://127.0.0.1:{port}/") == "tls"


async def test_down(make_client: Any) -> None:
    """Edge case 65: a closed port, and a name that does not resolve, are errors."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    client = make_client("127.0.0.1")
    assert await fail(client, f"https://127.0.0.1:{port}/") == "unreachable"
    assert await fail(client, "https://nobody.invalid/") == "no_such_host"


def test_setting() -> None:
    """The operator's list is hosts, with or without ports; other text stops the start."""
    settings = make_settings(
        "", outbound_private_hosts="Tools.internal, 10.0.0.5:8443,[fd00::1]:80"
    )
    assert settings.outbound_private_hosts == ("tools.internal", "10.0.0.5:8443", "[fd00::1]:80")
    for wrong in ("http://a", "a:0", "a:99999", "a b", "*.a", "a/b"):
        with pytest.raises(ValueError, match="must be hosts"):
            make_settings("", outbound_private_hosts=wrong)


@pytest.mark.parametrize(
    ("host", "is_refused"),
    [
        ("10.0.0.1", True),
        ("[::1]", True),
        ("[::ffff:7f00:1]", True),
        ("localhost", True),
        ("tools.localhost", True),
        ("8.8.8.8", False),
        ("localhost.example.com", False),
    ],
)
def test_private_by_its_spelling(host: str, is_refused: bool) -> None:  # noqa: FBT001
    """Who adds a private address is told at once, unless the operator has allowed it."""
    url = f"https://{host}/mcp"
    assert str(OutboundClient(frozenset({host})).require_public(url)) == url
    if is_refused:
        with pytest.raises(OutboundError) as raised:
            OutboundClient().require_public(url)
        assert raised.value.code == "private_address"
    else:
        assert str(OutboundClient().require_public(url)) == url
