"""The model client's connections: those that fail, are used again, or are left in mid-answer."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from asking import Asked, ignore, make_body, make_model, open_client
from cables import open_wire
from hlas.agent.providers import chat
from hlas.agent.providers.chat import ChatClient, ModelError
from model_scripts import Refuse
from scripted_agent import words
from scripted_model import ScriptedModel


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as opened:
        yield opened


@pytest_asyncio.fixture
async def client() -> AsyncIterator[ChatClient]:
    async with open_client() as opened:
        yield opened


async def test_refused(client: ChatClient) -> None:
    """Edge case 64: nothing can have been paid where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert await Asked(client, url).fail() == ("refused", False, False)


async def test_unknown_host(client: ChatClient) -> None:
    asked = Asked(client, "http://nowhere.invalid", seconds=60)
    assert await asked.fail() == ("refused", False, False)


async def test_tls_that_fails(client: ChatClient) -> None:
    """Without an encrypted connection nothing is sent, neither the prompt nor the key."""
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read(1))
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        received.extend(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await Asked(client, url, "a long prompt").fail() == ("refused", False, False)
    assert b"a long prompt" not in received


async def test_timeout_before_anything_is_sent(client: ChatClient) -> None:
    """A connection that cannot be made in time costs nothing."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        url = f"https://127.0.0.1:{busy.getsockname()[1]}"
        # It is accepted by the kernel, but nobody begins to speak TLS.
        assert await Asked(client, url, seconds=0.3).fail() == ("timeout", True, False)


async def test_a_connection_that_cannot_be_made(
    client: ChatClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that does not answer is given up long before the time limit, and costs nothing."""
    monkeypatch.setattr(chat, "CONNECT_SECONDS", 0.3)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        url = f"https://127.0.0.1:{busy.getsockname()[1]}"
        assert await Asked(client, url, seconds=60).fail() == ("refused", False, False)


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/v1", "nonsense", "http://user:password@127.0.0.1:1/v1"]
)
async def test_invalid_address(client: ChatClient, url: str) -> None:
    """An address that nothing can be sent to is an error of the model like any other."""
    assert await Asked(client, url).fail() == ("refused", False, False)


async def test_invalid_key(provider: ScriptedModel, client: ChatClient) -> None:
    """A key with a new line cannot add a header."""
    model = make_model(provider.url, "one\r\ntwo: three")
    with pytest.raises(ModelError) as caught:
        await client.complete(model, make_body("a"), ignore, seconds=30)
    assert (caught.value.code, caught.value.may_be_paid) == ("refused", False)
    assert provider.requests == []


async def test_idle_connection_closed_by_the_server(
    provider: ScriptedModel, client: ChatClient
) -> None:
    """A request on a connection that the server has closed is sent on another, once.

    The close has arrived, but the event loop has not seen it: nothing of the body was sent.
    """
    await Asked(client, provider.url, "say 1 words in 0 s").task
    used = provider.writers[0].get_extra_info("socket").fileno()
    with socket.fromfd(used, socket.AF_INET, socket.SOCK_STREAM) as end:
        end.shutdown(socket.SHUT_RDWR)
    body = make_body("say 3 words in 0 s")
    # Not a task: no event is processed before the body is written.
    completion = await client.complete(make_model(provider.url), body, ignore, seconds=30)
    assert completion.text == words(3)
    assert (len(provider.requests), provider.connections) == (2, 2)


async def test_idle_connection_cut_after_the_request(
    provider: ScriptedModel, client: ChatClient
) -> None:
    """A body that was sent on a used connection is never sent again."""
    await Asked(client, provider.url, "say 1 words in 0 s").task
    assert await Asked(client, provider.url, "fail cut").fail() == ("cut", False, True)
    assert (len(provider.requests), provider.connections) == (2, 1)


@pytest.mark.parametrize("text", ["fail hang", "say 3 words in 0 s fail hang"])
async def test_cancel(provider: ScriptedModel, client: ChatClient, text: str) -> None:
    """A visitor who stops the answer stops the provider, before and after its first word."""
    asked = Asked(client, provider.url, text)
    await provider.until(lambda: len(provider.requests) == 1)
    if text.startswith("say"):
        await asked.spoke.wait()
    assert provider.left == 0
    asked.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.task
    await provider.until(lambda: provider.left == 1)
    assert len(provider.requests) == 1


def make_tls(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of a client that trusts its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    address = x509.IPAddress(IPv4Address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "server.pem").write_bytes(secret + pem)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(directory / "server.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


@pytest.mark.parametrize("text", ["fail hang", "say 3 words in 0 s fail hang"])
async def test_cancel_over_tls(
    client: ChatClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A provider that does not answer TLS's farewell is left at once, not after 30 s."""
    server, trusting = make_tls(tmp_path)
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusting)
    async with ScriptedModel(tls=server) as provider, open_wire(provider.url) as wire:
        url = wire.url.replace("http:", "https:")
        await Asked(client, url, "say 1 words in 0 s").task
        asked = Asked(client, url, text)
        await provider.until(lambda: len(provider.requests) == 2)
        if text.startswith("say"):
            await asked.spoke.wait()
        # The second request came on the first connection.
        assert (provider.connections, provider.left) == (1, 0)
        wire.silent = True
        asked.task.cancel()
        async with asyncio.timeout(20):
            await provider.until(lambda: provider.left == 1)
        with pytest.raises(asyncio.CancelledError):
            await asked.task


async def test_listener_that_fails(provider: ScriptedModel, client: ChatClient) -> None:
    """An exception of `on_text`, such as that of a guard, is passed on and stops the provider."""

    def trip(_: str) -> None:
        raise LookupError

    body = make_body("say 3 words in 0 s fail hang")
    with pytest.raises(LookupError):
        await client.complete(make_model(provider.url), body, trip, seconds=30)
    await provider.until(lambda: provider.left == 1)
    assert len(provider.requests) == 1


async def test_connections_are_bounded(
    provider: ScriptedModel, client: ChatClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests wait for a connection within their own time limit, and cost nothing meanwhile."""
    monkeypatch.setattr(chat, "MOST_CONNECTIONS", 1)
    first = Asked(client, provider.url, "say 1 words in 0 s fail hang")
    await first.spoke.wait()
    waiting = Asked(client, provider.url, "say 3 words in 0 s", seconds=0.2)
    assert await waiting.fail() == ("timeout", True, False)
    assert (len(provider.requests), provider.connections) == (1, 1)
    first.task.cancel()


async def test_no_cookies(provider: ScriptedModel, client: ChatClient) -> None:
    """A cookie of one tenant's answer is not sent with another's request."""
    url = provider.url.replace("127.0.0.1", "localhost")
    provider.script = lambda _: [Refuse(429, (("Set-Cookie", "a=b; Path=/"),))]
    await Asked(client, url).fail()
    await Asked(client, url).fail()
    assert ["cookie" in head for head in provider.heads] == [False, False]
    assert len(provider.requests) == 2


async def test_refusal_leaves_the_connection(provider: ScriptedModel, client: ChatClient) -> None:
    """A connection whose response was complete stays: another request may use it already."""
    for _ in range(2):
        assert await Asked(client, provider.url, "fail 429").fail() == ("status_429", False, False)
    assert (len(provider.requests), provider.connections) == (2, 1)
