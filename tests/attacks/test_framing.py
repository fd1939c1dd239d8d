"""Attacks on framing: one response for each request, in order, none for bytes of a body."""

import asyncio
import itertools
import random

import pytest

from attacks import LAST, Attack, attack, fire, read_answer
from factories import Live, Site
from framings import (
    BAD_BODIES,
    HEALTH,
    NOTHING,
    WHOAMI,
    chunked,
    head,
    make_answered,
    make_pipelined,
    make_refused,
)
from lane import raw
from raw_http import connect, request


def no_faults(live: Live) -> bool:
    return not [line for line in live.events() if line["event"] in {"error", "library"}]


async def test_refused(live_server: Live) -> None:
    """Edge case 46: an ambiguous request is a 400, the last response on its connection."""
    attacks = list(make_refused())
    assert len(attacks) >= 140
    await fire(live_server.url, attacks)
    assert no_faults(live_server)


async def test_answered(live_server: Live) -> None:
    """Edge case 46: unread bodies are never parsed as requests, for any method and route."""
    attacks = list(make_answered())
    assert len(attacks) >= 55
    await fire(live_server.url, attacks)
    assert no_faults(live_server)


async def test_pipelined(site: Site) -> None:
    """Edge case 46: earlier requests keep their responses and their order."""
    session = request(
        "POST", "/widget/session", f"Origin: {site.origin}", "Content-Length: 2", body=b"{}"
    )
    attacks = list(make_pipelined(session))
    assert len(attacks) >= 56
    await fire(site.live.url, attacks)
    assert no_faults(site.live)


async def finish(url: str, first: bytes, rest: bytes) -> tuple[int, bytes]:
    """The first status, and all bytes that follow until the connection ends."""
    reader, writer = await connect(url)
    writer.write(first)
    async with asyncio.timeout(20):
        status = (await read_answer(reader)).status
        writer.write(rest + LAST)
        more = await reader.read()
    writer.close()
    return status, more


@pytest.mark.settings(rate_limit_messages_ip="1/h")
@pytest.mark.parametrize("bad", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_answered_before_its_body_broke(site: Site, bad: bytes) -> None:
    """Edge case 46: a request that was answered gets no second response for its broken body."""
    assert (await site.send()).status_code == 200
    for path, status in (
        (NOTHING, 404),
        ("/health", 405),
        ("/admin/tenants", 401),
        ("/widget/messages", 429),
    ):
        assert await finish(site.live.url, chunked(b"", path=path), bad) == (status, b""), path
    assert no_faults(site.live)


ENDLESS = {
    "trailers": (b"0\r\n", b"X-Any: %b\r\n" % (b"a" * 1000)),
    "one trailer": (b"0\r\nX-Any: ", b"a" * 1000),
    "extension": (b"2;x=", b"a" * 1000),
    "extensions": (b"2", b";a=b" * 250),
    "zeros of a size": (b"", b"0" * 1000),
}


@pytest.mark.parametrize(("start", "piece"), ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("path", [NOTHING, "/widget/session"])
async def test_endless(live_server: Live, path: str, start: bytes, piece: bytes) -> None:
    """Edge case 35: chunk sizes, extensions and trailers are bounded, because they use memory."""
    reader, writer = await connect(live_server.url)
    writer.write(chunked(start, path=path))
    sent = 0
    try:
        while sent < 2**25:
            writer.write(piece * 64)
            await writer.drain()
            sent += len(piece) * 64
    except ConnectionError:
        pass  # expected
    writer.close()
    reader.feed_eof()
    # What the server reads while it lingers, and the buffers of the kernels.
    assert sent < 2**24, "the server reads on and on"


async def test_expect_in_http_1_0(site: Site) -> None:
    """RFC 9110: an HTTP/1.0 client would take 100 for the final response."""
    lines = (b"Origin: " + site.origin.encode(), b"Expect: 100-continue", b"Content-Length: 2")
    sent = head(b"POST /widget/session HTTP/1.0", *lines)
    await fire(site.live.url, [attack("expects", sent, b"{}", says=[200])])


def make_random(site: Site, seed: int) -> Attack:
    """Up to 40 requests of all kinds, perhaps an unreadable one, cut into random packets."""
    chance = random.Random(seed)
    origin = f"Origin: {site.origin}"
    pool = (
        (HEALTH, 200),
        (WHOAMI, 401),
        (request("POST", "/widget/session", origin, "Content-Length: 2", body=b"{}"), 200),
        (raw(site, "in the lane", f"key-{seed}"), 200),
        (chunked(b"2\r\n{}\r\n0\r\n\r\n"), 404),
        (request("POST", NOTHING, f"Content-Length: {len(LAST)}", body=LAST), 404),
    )
    chosen = chance.choices(pool, k=chance.randint(0, 40))
    end = chance.choice([attack("", LAST, says=[200]), *make_refused()])
    whole = b"".join(sent for sent, _ in chosen) + b"".join(end.packets)
    cuts = sorted(chance.sample(range(1, len(whole)), k=chance.randint(0, 5)))
    packets = [whole[start:stop] for start, stop in itertools.pairwise((0, *cuts, len(whole)))]
    says = [*(status for _, status in chosen), *end.statuses]
    return attack(f"seed {seed}, {end.name}", *packets, says=says)


async def test_random(site: Site) -> None:
    """Edge case 46: the same in random order and random packets."""
    await fire(site.live.url, [make_random(site, seed) for seed in range(100)])
    assert no_faults(site.live)


@pytest.mark.soak
async def test_random_soak(site: Site) -> None:
    """The same for minutes."""
    for start in range(0, 5000, 500):
        await fire(site.live.url, [make_random(site, start + seed) for seed in range(500)])
    assert no_faults(site.live)
