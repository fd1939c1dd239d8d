"""Visitors that send like the widget: with a key, and with retries until they get a response."""

import asyncio
import itertools
from dataclasses import dataclass, field

import httpx

from factories import leave_to_people
from hlas.store.db import Database
from hlas.tenants import tenants

PAUSE_SECONDS = 0.05

_numbers = itertools.count(1)


@dataclass
class Visitor:
    """One conversation, reachable through any server of its database."""

    origin: str
    token: str
    conversation_id: str
    # Acknowledged messages: the id by key.
    acknowledged: dict[str, str] = field(default_factory=dict)
    tries: int = 0

    @property
    def headers(self) -> dict[str, str]:
        return {"Origin": self.origin, "Authorization": f"Bearer {self.token}"}

    async def post(
        self, client: httpx.AsyncClient, text: str, key: str | None = None
    ) -> httpx.Response:
        self.tries += 1
        headers = {**self.headers, **({"Idempotency-Key": key} if key else {})}
        return await client.post("/widget/messages", headers=headers, json={"text": text})

    async def send(self, client: httpx.AsyncClient, text: str, key: str) -> httpx.Response:
        """Retry until the message is stored or finally refused."""
        while True:
            try:
                answer = await self.post(client, text, key)
            except httpx.TransportError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if answer.status_code == 200:
                self.acknowledged[key] = answer.json()["message_id"]
                return answer
            detail = answer.json()["detail"]
            if detail not in {"unavailable", "idempotency_in_progress"}:
                return answer
            await asyncio.sleep(PAUSE_SECONDS)

    async def read(self, client: httpx.AsyncClient, after: int) -> list[dict[str, object]]:
        answer = await client.get(
            f"/widget/conversations/{self.conversation_id}/messages",
            headers=self.headers,
            params={"after": after, "limit": 100},
        )
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, object]] = answer.json()["messages"]
        return messages


async def arrive(client: httpx.AsyncClient, operators: Database, count: int = 1) -> list[Visitor]:
    """Create this many visitors on the website of a new tenant."""
    slug = f"visited-{next(_numbers)}"
    origin = f"https://{slug}.example"
    await tenants.add(operators, slug, slug, [origin])
    await leave_to_people(operators)
    return [await _arrive(client, origin) for _ in range(count)]


async def _arrive(client: httpx.AsyncClient, origin: str) -> Visitor:
    answer = await client.post("/widget/session", headers={"Origin": origin})
    assert answer.status_code == 200, answer.text
    opened = answer.json()
    return Visitor(origin, opened["token"], opened["conversation_id"])


async def find_losses(operators: Database, visitors: list[Visitor]) -> list[str]:
    """After every send was acknowledged: messages lost, duplicated or unknown, or a gap."""
    problems = []
    for visitor in visitors:
        rows = await operators.all(
            "select id::text as id, seq, content from messages where conversation_id = $1"
            " order by seq",
            visitor.conversation_id,
        )
        by_text: dict[str, list[str]] = {}
        for row in rows:
            by_text.setdefault(row["content"], []).append(row["id"])
        # In these tests the text of a message is its key.
        for key, message_id in visitor.acknowledged.items():
            if message_id not in by_text.get(key, ()):
                problems.append(f"{key}: acknowledged and lost")
        problems += [f"{text}: doubled" for text, ids in by_text.items() if len(ids) > 1]
        problems += [f"{text}: unasked for" for text in by_text.keys() - visitor.acknowledged]
        if [row["seq"] for row in rows] != list(range(1, len(rows) + 1)):
            problems.append(f"{visitor.conversation_id}: seq has a gap")
    return problems


async def find_settled_losses(operators: Database, visitors: list[Visitor]) -> list[str]:
    """Retry, because the first queries after a kill may use dead connections."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await find_losses(operators, visitors)
            except Exception:  # noqa: BLE001  # retried until the timeout
                await asyncio.sleep(0.1)
