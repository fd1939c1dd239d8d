"""The embedding process: tenants apart, hostile bytes, who may reach it."""

import asyncio
import json
import os
import stat
import struct
from pathlib import Path

import pytest

from embedding import Host, needs_extra, until_answering
from hlas.knowledge.embedding.embedders import ProcessEmbedder
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.protocol import (
    LARGEST_BODY,
    LARGEST_HEAD,
    MOST_TEXTS,
    Compare,
    Describe,
    Embed,
    Keep,
    Put,
    Reply,
)

pytestmark = needs_extra

# As in process.py, which needs the extra.
MOST_CONNECTIONS = 128

HOURS = "When are you open?"
DELIVERY = "How much does shipping cost?"


async def embed(host: Host, *texts: str) -> bytes:
    _, body = await exchange(host.socket, Embed(list(texts)))
    return body


async def find_name(host: Host) -> str:
    return (await ProcessEmbedder(host.socket).find_model()).name


async def ask(host: Host, tenant: str, text: str, *, cursor: int, entries: int) -> Reply:
    request = Compare(tenant, await find_name(host), cursor, entries, text)
    reply, _ = await exchange(host.socket, request)
    return reply


async def test_nearest_first(shared_host: Host) -> None:
    """A paraphrase without a common word finds its entry; the best vector of an entry counts."""
    name = await find_name(shared_host)
    vectors = await embed(shared_host, HOURS, "The capital of France is Paris.", DELIVERY)
    put = Put("near", name, 0, 7, ["hours", "delivery"], [1, 2])
    reply, _ = await exchange(shared_host.socket, put, vectors)
    assert (reply.cursor, reply.entries) == (7, 2)
    found = await ask(shared_host, "near", "what is the postage fee", cursor=7, entries=2)
    assert (found.outcome, found.ids) == ("ok", ["delivery", "hours"])
    assert found.scores[0] > found.scores[1]
    # Sent a second time, as by another worker, it changes nothing.
    await exchange(shared_host.socket, put, vectors)
    await exchange(shared_host.socket, Keep("near", name, ["hours"]))
    found = await ask(shared_host, "near", "what is the postage fee", cursor=7, entries=1)
    assert found.ids == ["hours"]


async def test_tenants_are_apart(shared_host: Host) -> None:
    """A search sees the vectors of its own tenant only, and no one else's cursor."""
    name = await find_name(shared_host)
    vector = await embed(shared_host, HOURS)
    for tenant in ("apart-a", "apart-b"):
        put = Put(tenant, name, 0, 5, [f"{tenant}-entry"], [1])
        await exchange(shared_host.socket, put, vector)
    for tenant in ("apart-a", "apart-b"):
        found = await ask(shared_host, tenant, HOURS, cursor=5, entries=1)
        assert (found.outcome, found.ids) == ("ok", [f"{tenant}-entry"])
    unknown = await ask(shared_host, "apart-c", HOURS, cursor=5, entries=1)
    assert (unknown.outcome, unknown.cursor, unknown.entries, unknown.ids) == ("behind", 0, 0, [])
    # Nor are vectors of another model searched.
    request = Compare("apart-a", "another-model", 5, 1, HOURS)
    reply, _ = await exchange(shared_host.socket, request)
    assert (reply.outcome, reply.ids) == ("other_model", [])


def frame(head: object, body: bytes = b"") -> bytes:
    packed = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("!II", len(packed), len(body)) + packed + body


DEEP = b"[" * 100_000
HOSTILE = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    os.urandom(1000),
    struct.pack("!II", 2**32 - 1, 2**32 - 1),
    struct.pack("!II", LARGEST_HEAD + 1, 0),
    struct.pack("!II", 2, LARGEST_BODY + 1),
    struct.pack("!II", 100, 0) + b"[",
    frame(b""),
    frame(b"{}"),
    frame(b"[]"),
    frame(DEEP),
    frame(b"\xff\xfe"),
    frame(["Reply"]),
    frame(["Describe", 1]),
    frame(["Embed", "text"]),
    frame(["Embed", [1]]),
    frame(["Embed", ["x"] * (MOST_TEXTS + 1)]),
    frame(["Compare", "t", "m", True, 0, "x"]),
    frame(["Compare", "t", "m", 2**70, 0, "x"]),
    frame(["Put", "t", "m", 0, 1, ["a"], [1, 1]], b"\0" * 8),
    frame(["Put", "t", "m", 0, 1, ["a"], [-1]], b"\0" * 8),
    frame(["Put", "t", "m", 0, 1, ["a"], [3]], b"\0" * 8),
    frame(["Put", "t", "m", 0, 1, ["a"], [1]], b"\0" * 3),
    frame(["Put", "t", "m", 0, 1, ["a"], [2**60]], b"\0" * 8),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
async def test_hostile_bytes(shared_host: Host, number: int) -> None:
    """An invalid request ends its connection without an answer, and nothing else."""
    reader, writer = await asyncio.open_unix_connection(shared_host.socket)
    writer.write(HOSTILE[number])
    writer.write_eof()
    try:
        assert await asyncio.wait_for(reader.read(), 30) == b""
    except ConnectionResetError:
        pass
    finally:
        writer.close()
    reply, _ = await exchange(shared_host.socket, Describe())
    assert reply.outcome == "ok"


async def test_hostile_vectors(shared_host: Host) -> None:
    """Vectors that are no numbers are refused; of another length, they harm only their tenant."""
    name = await find_name(shared_host)
    nan = struct.pack("<e", float("nan")) * 384
    with pytest.raises((EOFError, OSError)):
        await exchange(shared_host.socket, Put("nan", name, 0, 1, ["a"], [1]), nan)
    await exchange(shared_host.socket, Put("short", name, 0, 1, ["a"], [1]), b"\0" * 8)
    with pytest.raises((EOFError, OSError)):
        await ask(shared_host, "short", HOURS, cursor=1, entries=1)
    reply, _ = await exchange(shared_host.socket, Describe())
    assert reply.outcome == "ok"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of the tenants that asked last are kept; a tenant that is too large has none."""
    import numpy as np

    from hlas.knowledge.embedding import matrices

    known = matrices.Matrices()
    for number in range(2 * matrices.MOST_TENANTS):
        known.open(str(number), "model")
    assert len(known._by_key) == matrices.MOST_TENANTS
    monkeypatch.setattr(matrices, "MOST_BYTES", 10_000)
    monkeypatch.setattr(matrices, "MOST_TENANT_BYTES", 5_000)
    row = np.ones(100, np.float16)
    for number in range(100):
        known.open(f"row-{number}", "model").put(["entry"], [1], row)
        known.make_room()
    assert sum(matrix.size for matrix in known._by_key.values()) <= 10_000
    assert len(known.open("row-99", "model")) == 1
    large = known.open("large", "model")
    large.put([str(number) for number in range(10)], [1] * 10, np.tile(row, 10))
    assert (large.is_too_large, large.search(row.astype(np.float32))) == (True, ([], []))
    assert large.size <= 5_000


async def test_silent_connections(shared_host: Host) -> None:
    """Connections that send nothing or half a frame keep nobody else out, up to a number; those
    beyond it are closed, and when they leave, there is room again.
    """
    silent = [
        await asyncio.open_unix_connection(shared_host.socket) for _ in range(MOST_CONNECTIONS - 8)
    ]
    for _, writer in silent:
        writer.write(b"\0\0")
    reply, _ = await exchange(shared_host.socket, Describe())
    assert reply.outcome == "ok"
    more = [await asyncio.open_unix_connection(shared_host.socket) for _ in range(16)]
    assert await asyncio.wait_for(more[-1][0].read(), 30) == b""
    for _, writer in (*silent, *more):
        writer.transport.abort()
    await until_answering(shared_host.socket)


async def test_only_its_user(shared_host: Host, tmp_path: Path) -> None:
    """Socket and directory are of one user; a directory that others can enter is not trusted."""
    directory = shared_host.socket.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(shared_host.socket.stat().st_mode) == 0o600
    open_directory = tmp_path / "open"
    open_directory.mkdir(mode=0o755)
    heard: list[object] = []
    server = await asyncio.start_unix_server(
        lambda *connection: heard.append(connection), open_directory / "embedding.sock"
    )
    async with server:
        with pytest.raises(FileNotFoundError):
            await exchange(open_directory / "embedding.sock", Describe())
    assert heard == []
