"""`hlas doctor --page` on untrusted pages: bounded, and no requests to internal addresses."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from hlas.doctor import website
from hlas.outbound import fetch
from hlas.outbound.fetch import Unreachable
from processes import environment, hlas
from web_servers import raw_server, web_server

TAG = b'<script type="module" src="http://127.0.0.1/widget.js"></script>'
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def redirect(location: str) -> Callable[[Any], tuple[int, list[tuple[str, str]], bytes]]:
    return lambda _: (302, [("Location", location)], b"")


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> str:
    """A local address that is treated as public."""
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.2")
    return "127.0.0.2"


async def test_redirects_are_followed(public: str) -> None:
    """Up to five redirects are followed, relative ones too, and from a local page to anywhere."""
    with web_server(lambda _: (200, [], TAG), public) as last, web_server(redirect(last)) as first:
        assert (await fetch.fetch(first, follow=True)).url == f"{last}/"
        assert (await fetch.fetch(first)).status == 302
        assert (await website.check_page(None, first)).status == "ok"

    def count(handler: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        number = int(handler.path[1:])
        return (302, [("Location", str(number - 1))], b"") if number else (200, [], TAG)

    with web_server(count) as page:
        assert (await fetch.fetch(f"{page}/5", follow=True)).url == f"{page}/0"
        with pytest.raises(Unreachable, match="redirects more than 5 times"):
            await fetch.fetch(f"{page}/6", follow=True)


async def test_no_redirect_into_our_network(public: str) -> None:
    """A public page cannot redirect to loopback in any spelling, also not over several hops."""
    asked: list[str] = []

    def secret(handler: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        asked.append(handler.path)
        return 200, [], TAG

    with web_server(secret) as inside:
        port = inside.rpartition(":")[2]
        for location in (
            inside,
            f"http://localhost:{port}/",
            f"//127.0.0.1:{port}/",
            f"http://[::ffff:7f00:1]:{port}/",
            f"http://127.1:{port}/",
            f"http://2130706433:{port}/",
            f"http://0x7f.1:{port}/",
        ):
            with web_server(redirect(location), public) as page:
                found = await website.check_page(None, page)
            assert found.status == "warn", location
            assert "it redirects" in found.found, location
        with (
            web_server(redirect(inside), public) as outside,
            web_server(redirect(outside)) as own,
            pytest.raises(Unreachable, match="which is not public"),
        ):
            await fetch.fetch(own, follow=True)
        with web_server(redirect(inside)) as own:
            assert (await fetch.fetch(own, follow=True)).status == 200
    assert asked == ["/"]


@pytest.mark.parametrize(
    "location",
    [
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "http://[",
        "http://:99999",
        "http://user@127.0.0.1/",
        "javascript:alert(1)",
        "http://127.0.0.1:1\x1b[2J",
        "http://" + "a" * 5000,
    ],
)
async def test_odd_redirects(location: str) -> None:
    """A redirect to another scheme or to an invalid address is one clear line."""
    with web_server(redirect(location)) as page:
        found = await website.check_page(None, page)
    assert found.status == "warn"
    said = (
        "redirects to something that is not an http or https address",
        "does not answer in HTTP",
    )
    assert found.found.endswith(said)


async def test_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is requested directly, also if the environment has a proxy."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with web_server(lambda _: (200, [], TAG)) as page:
        assert (await website.check_page(None, page)).status == "ok"


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "endless", "message"),
    [
        ([], b"", "before it answered"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], b"", "does not answer in HTTP"),
        ([b"HTTP/1.1 99999 X\r\n\r\n"], b"", "does not answer in HTTP"),
        ([HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"], b"", "does not answer in HTTP"),
        (
            [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"],
            b"",
            "does not answer in HTTP",
        ),
        ([CHUNKED + b"z\r\n"], b"", "does not answer in HTTP"),
        ([HEAD], b"X-Header: " + b"x" * 1000 + b"\r\n", "sent too much"),
        ([HEAD], b"x", "within 1 s"),
        ([HEAD + b"Content-Length: 100\r\n\r\n"], b"x", "within 1 s"),
    ],
)
async def test_hostile_answers(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], endless: bytes, message: str
) -> None:
    """Invalid, too large or too slow responses are one clear line, in bounded time."""
    monkeypatch.setattr(fetch, "SECONDS", 1.0)
    async with raw_server(*pieces, endless=endless) as page:
        found = await website.check_page(None, page)
    assert found.status == "warn"
    assert message in found.found


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (HEAD + b"\r\n" + TAG, b"x" * 65536),
        (CHUNKED + b"%x\r\n%b\r\n0\r\n" % (len(TAG), TAG), b"X-Trailer: x\r\n" * 4096),
        (CHUNKED + b"%x\r\n%b\r\n" % (len(TAG), TAG), b"1;" + b"x" * 65536 + b"\r\nx\r\n"),
    ],
    ids=["body", "trailers", "chunks"],
)
async def test_an_endless_page(
    monkeypatch: pytest.MonkeyPatch, start: bytes, endless: bytes
) -> None:
    """Only the start of an endless page is read, however it is framed."""
    read = asyncio.StreamReader.read
    received = 0

    async def counted(self: asyncio.StreamReader, most: int) -> bytes:
        nonlocal received
        data = await read(self, most)
        received += len(data)
        return data

    monkeypatch.setattr(asyncio.StreamReader, "read", counted)
    async with raw_server(start, endless=endless) as page:
        assert (await website.check_page(None, page)).status == "ok"
    assert received < fetch.LARGEST + 65536


async def test_answers_in_pieces() -> None:
    """Interim responses, chunks, and a body that ends with the connection are read."""
    for answer in (
        b"HTTP/1.1 103 Early Hints\r\nLocation: /x\r\n\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\n\r\nabcdef",
    ):
        async with raw_server(answer) as page:
            fetched = await fetch.fetch(page)
        assert (fetched.status, fetched.body) == (200, b"abc")
        assert fetched.headers.get("Location") is None


@pytest.mark.parametrize(
    "body",
    [
        b"<![<![<![",
        b"<" * 200_000,
        b"<!--" * 50_000,
        b'<script src="http://[/widget.js">',
        b'<script src="http://[::1/widget.js"></script>',
        b'<script src="http://' + b"x" * 100_000 + b'/widget.js"></script>',
        b"\xff\xfe\0<script>",
    ],
)
async def test_hostile_pages(body: bytes) -> None:
    """No page makes a check raise an exception or print without bound."""
    with web_server(lambda _: (200, [], body)) as page:
        found = await website.check_page(None, page)
    assert found.status in {"warn", "fail"}
    assert len(found.found) < 400


async def test_a_service_that_is_not_ours() -> None:
    """A service that returns other JSON than Hlas is a finding."""
    for body in (b"[]", b"1", b'{"seen": 7}', b'{"seen": {"address": {}}}', b"9" * 5000, b"\xff"):
        with web_server(lambda _, body=body: (200, [], body)) as url:
            found = await website.check_address(website.Service(url, "s" * 40))
        assert found.status == "fail"
        assert found.found == f"{url} does not answer as Hlas does"
    secretless = await website.check_address(website.Service("http://127.0.0.1:1", ""))
    assert secretless.status == "warn"


async def test_nothing_of_a_page_controls_the_terminal(tmp_path: Path) -> None:
    """Escape codes of a page and its headers are not printed, as text or as JSON."""
    body = f'<script src="http://{EVIL}/widget.js"></script>'.encode()
    health = orjson.dumps(
        {"seen": {"peer": EVIL, "forwarded_for": [EVIL], "trusted": False, "address": EVIL}}
    )

    def answer(handler: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        return 200, [("Server", "\x9b31m")], health if handler.path == "/health" else body

    with web_server(answer) as url:
        for options in ((), ("--json",)):
            done = await asyncio.to_thread(
                hlas,
                "doctor",
                "--url",
                url,
                "--page",
                f"{url}/?\x1b[2J",
                *options,
                cwd=tmp_path,
                **environment(DATA_DIR=str(tmp_path / "none"), WIDGET_SESSION_JWT_SECRET="s" * 40),
            )
            assert done.returncode == 1
            printed = (done.stdout + done.stderr).replace("\n", "")
            assert "owned" in printed
            assert printed.isprintable()


@pytest.mark.parametrize(
    "address", ["http://[", "http://:99999", "ftp://shop.example/", "file:///etc/passwd", "\x1b[2J"]
)
@pytest.mark.parametrize("option", ["--page", "--url"])
def test_odd_addresses(tmp_path: Path, option: str, address: str) -> None:
    """An invalid address is one clear line and exit status 2, and nothing is started."""
    done = hlas("doctor", option, address, cwd=tmp_path, **environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"hlas: invalid value for '{option}': write an http or https address, such as "
        "https://shop.example/; see `hlas doctor --help`\n"
    )
    assert list(tmp_path.iterdir()) == []
