"""What tests of administration build: keys, and a client that uses one."""

from dataclasses import dataclass
from typing import Any

import httpx

from factories import Live
from hlas import administrators
from hlas.db import Database


@dataclass
class Desk:
    """An administrator with a key."""

    live: Live
    key: str
    prefix: str

    async def ask(
        self, method: str, path: str, *, tag: str | None = None, **options: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        if tag is not None:
            headers["If-Match"] = tag
        return await self.live.client.request(method, f"/admin{path}", headers=headers, **options)

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = await self.ask("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def tag(self, path: str) -> str:
        return str((await self.ask("GET", path)).headers["ETag"])


async def make_desk(live: Live, operators: Database, slug: str | None = None) -> Desk:
    """An operator's desk, or that of a tenant's own administrator."""
    added, key = await administrators.add(operators, "Ada", slug)
    return Desk(live, key, added["prefix"])


async def audit_of(operators: Database) -> list[tuple[str, str, str]]:
    """Actor, action and target of every event, oldest first."""
    rows = await operators.all("select actor, action, target from events order by id")
    return [(row["actor"], row["action"], row["target"]) for row in rows]
