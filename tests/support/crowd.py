"""Simulated visitors that send requests at a given rate and record the responses."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

# Part of every text and key; a log line that contains it is a leak.
WORD = "crowdspeak"
# After an outage the crowd catches up with at most this much, so that no flood follows.
BURST_SECONDS = 0.25
# Enough to hit the limit of a conversation, 30 a minute.
HASTY_SENDS = 36
HASTY_SHARE = 0.05
# Actions of a visitor; few enough that the others stay below the same limit.
LENGTH = 16
# How often a visitor retries after 503.
PATIENCE = 10
# The number of distinct unknown origins: the server caches each of them for a while.
STRANGERS = 500


class Reply(NamedTuple):
    status: int
    head: bytes
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.body)
        return found

    @property
    def retry_after(self) -> int:
        return int(self.head.partition(b"\r\nretry-after:")[2].partition(b"\r\n")[0])


class Line:
    """The single connection of a browser; reopened whenever it was closed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> Reply:
        reader, _ = await self._send(method, path, headers, body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        # 204 has no body and no Content-Length.
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or 0)
        content = b"" if method == "HEAD" else await reader.readexactly(length)
        if b"\r\nconnection: close" in head:
            self.close()
        return Reply(int(head[9:12]), head, content)

    async def leave(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        """Send a request and disconnect before the response."""
        _, writer = await self._send(method, path, headers, body)
        await writer.drain()
        self.close()

    async def _send(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        lines = [f"{method} {path} HTTP/1.1", "Host: hlas.test"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._streams[1].write("\r\n".join([*lines, "", ""]).encode() + body)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class Pace:
    """Limits the total rate in turns a second; None: unlimited."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next = 0.0

    async def turn(self) -> None:
        if self._rate is None:
            return
        now = time.monotonic()
        self._next = max(self._next + 1 / self._rate, now - BURST_SECONDS)
        if self._next > now:
            await asyncio.sleep(self._next - now)


@dataclass
class Account:
    """Statuses, problems and acknowledgements, in bounded memory."""

    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0
    # The sum of the random bits of the ids of all acknowledged messages.
    ids: int = 0
    slowest: float = 0.0

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())

    def acknowledge(self, message_id: str) -> None:
        self.acknowledged += 1
        self.ids += int(message_id.replace("-", "")[-15:], 16)


class Life:
    """One visitor from the first request to the last."""

    def __init__(self, crowd: "Crowd", randomness: random.Random) -> None:
        self._crowd = crowd
        self._account = crowd.account
        self._random = randomness
        self._line = Line(crowd.url)
        self._origin = randomness.choice(crowd.origins)
        self._session: dict[str, Any] = {}
        # The message id by key; the key is also the text.
        self._sent: dict[str, str] = {}
        self._said: set[str] = set()

    async def run(self) -> None:
        try:
            await self._live()
        finally:
            self._line.close()

    async def _live(self) -> None:
        opened = await self._ask("POST", "/widget/session", 200, origin=True)
        if opened.status != 200:
            return
        self._session = opened.json
        quiet = {
            self._read: 12,
            self._get_reply: 6,
            self._look: 4,
            self._preflight: 2,
            self._renew: 1,
        }
        talkative = {self._send: 55, self._replay: 8, self._blunder: 8, self._leave: 4}
        if self._random.random() < HASTY_SHARE:
            # A visitor that was refused sends nothing more.
            await self._hurry()
            doings = quiet
        else:
            doings = quiet | talkative
        for do in self._random.choices(list(doings), list(doings.values()), k=LENGTH):
            await do()
        await self._compare()

    async def _ask(
        self,
        method: str,
        path: str,
        *expected: int,
        origin: bool = False,
        body: bytes = b"",
        **headers: str,
    ) -> Reply:
        """Send one request at the crowd's rate; an unexpected response is recorded.

        After 503 it is retried, as any client would.
        """
        await self._crowd.pace.turn()
        known = {} if origin else {"Authorization": f"Bearer {self._session['token']}"}
        given = {"Origin": self._origin, **known}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        for _ in range(PATIENCE):
            started = time.monotonic()
            reply = await self._line.ask(method, path, given, body)
            self._account.slowest = max(self._account.slowest, time.monotonic() - started)
            self._account.statuses[reply.status] += 1
            if reply.status != 503:
                break
            await asyncio.sleep(reply.retry_after)
        if reply.status not in expected:
            self._account.problems.append(f"{method} {path}: {reply.status} {reply.body[:80]!r}")
        return reply

    def _new_key(self) -> str:
        return f"{WORD}-{self._random.getrandbits(64):016x}"

    async def _post(self, key: str, text: str, *expected: int) -> Reply:
        body = orjson.dumps({"text": text, "metadata": {"page": f"/{WORD}"}})
        return await self._ask(
            "POST", "/widget/messages", *expected, body=body, Idempotency_Key=key
        )

    def _acknowledge(self, key: str, reply: Reply) -> None:
        if reply.status == 200:
            self._sent[key] = reply.json["message_id"]
            self._account.acknowledge(self._sent[key])

    async def _send(self) -> None:
        key = self._new_key()
        self._acknowledge(key, await self._post(key, key, 200))

    async def _hurry(self) -> None:
        for _ in range(HASTY_SENDS):
            key = self._new_key()
            self._acknowledge(key, await self._post(key, key, 200, 429))

    async def _replay(self) -> None:
        if not self._sent:
            return
        key = self._random.choice(list(self._sent))
        reply = await self._post(key, key, 200)
        if reply.status == 200 and reply.json["message_id"] != self._sent[key]:
            self._account.problems.append("a replay had another id")

    async def _leave(self) -> None:
        """Disconnect before the response and retry over a new connection."""
        key = self._new_key()
        body = orjson.dumps({"text": key, "metadata": {"page": f"/{WORD}"}})
        headers = {"Authorization": f"Bearer {self._session['token']}", "Idempotency-Key": key}
        await self._crowd.pace.turn()
        await self._line.leave("POST", "/widget/messages", headers, body)
        self._acknowledge(key, await self._post(key, key, 200))

    async def _get_reply(self) -> None:
        key = self._new_key()
        reply = await self._ask(
            "POST", "/widget/messages/assistant", 200 if self._sent else 400, Idempotency_Key=key
        )
        if reply.status == 200:
            self._said.add(reply.json["message_id"])

    @property
    def _history(self) -> str:
        return f"/widget/conversations/{self._session['conversation_id']}/messages"

    async def _read(self) -> None:
        await self._ask("GET", f"{self._history}?limit=20", 200)

    async def _look(self) -> None:
        await self._ask("GET", "/widget/whoami", 200)

    async def _renew(self) -> None:
        renewed = await self._ask("POST", "/widget/session/refresh", 200)
        if renewed.status == 200:
            self._session = renewed.json

    async def _preflight(self) -> None:
        await self._ask(
            "OPTIONS", "/widget/messages", 204, origin=True, Access_Control_Request_Method="POST"
        )

    async def _blunder(self) -> None:
        """Requests of broken pages, with old tokens and from unknown origins."""
        # A valid origin may be logged; nothing else from an unknown client may.
        stranger = f"https://stranger-{self._random.randrange(STRANGERS)}.example"
        post = "/widget/messages"
        blunders: list[tuple[str, str, int, dict[str, Any]]] = [
            ("POST", post, 422, {"body": b'{"text": '}),
            ("POST", post, 422, {"body": b'{"text": "a", "more": 1}'}),
            ("POST", post, 422, {"body": orjson.dumps({"text": WORD * 300})}),
            ("POST", post, 400, {"body": b'{"text": " "}'}),
            ("POST", post, 400, {"body": b'{"text": "a"}', "Idempotency_Key": "a b"}),
            ("POST", post, 413, {"body": b'"' + b"a" * 70_000 + b'"'}),
            ("POST", post, 401, {"body": b'{"text": "a"}', "Authorization": f"Bearer {WORD}"}),
            ("POST", post, 403, {"body": b'{"text": "a"}', "origin": False, "Origin": stranger}),
            ("DELETE", post, 405, {}),
            ("GET", f"/{WORD}/{self._random.getrandbits(32)}", 404, {}),
            ("GET", f"/widget/conversations/{WORD}/messages", 403, {}),
            ("GET", f"{self._history}?limit=1000", 422, {}),
            ("POST", "/widget/session", 403, {"origin": True, "Origin": stranger}),
            ("POST", "/widget/session", 400, {"origin": True, "Origin": f"{WORD}:"}),
        ]
        method, path, expected, options = self._random.choice(blunders)
        await self._ask(method, path, expected, **options)
        if self._sent:
            key = self._random.choice(list(self._sent))
            await self._post(key, "other words", 409)

    async def _compare(self) -> None:
        """At the end: the history has every acknowledged message once, without a gap."""
        stored: list[dict[str, Any]] = []
        while True:
            reply = await self._ask("GET", f"{self._history}?after={len(stored)}&limit=100", 200)
            if reply.status != 200:
                return
            page = reply.json
            stored += page["messages"]
            if not page["paging"]["has_more"]:
                break
        said = {one["content"]: one["id"] for one in stored if one["role"] == "user"}
        answered = {one["id"] for one in stored if one["role"] == "assistant"}
        in_order = [one["seq"] for one in stored] == list(range(1, len(stored) + 1))
        # A run answers one message or several, and none is answered twice.
        once = len(stored) == len(self._sent) + len(answered) and len(answered) <= len(said)
        if said != self._sent or not self._said <= answered or not in_order or not once:
            self._account.problems.append(f"not what was acknowledged: {self._history}")


class Crowd:
    """Visitors, one after the other."""

    def __init__(self, url: str, origins: list[str], visitors: int, seed: int = 7) -> None:
        self.url = url
        self.origins = origins
        self.pace = Pace(None)
        self.account = Account()
        self._visitors = visitors
        self._seed = seed

    @asynccontextmanager
    async def present(self, rate: float | None) -> AsyncIterator[None]:
        """Run at this rate during the block; at its end all visitors finish."""
        self.pace = Pace(rate)
        self._seed += 1
        over = asyncio.Event()

        async def visit(number: int) -> None:
            randomness = random.Random(f"{self._seed} {number}")
            while not over.is_set():
                await Life(self, randomness).run()

        async with asyncio.TaskGroup() as visiting:
            for number in range(self._visitors):
                visiting.create_task(visit(number))
            yield
            over.set()

    async def live(self, lives: int) -> None:
        """Run this many visitors to their end."""
        todo = iter(range(lives))

        async def visit() -> None:
            for number in todo:
                await Life(self, random.Random(f"{self._seed} {number}")).run()

        async with asyncio.TaskGroup() as visiting:
            for _ in range(self._visitors):
                visiting.create_task(visit())
