"""Creating messages over HTTP."""

import asyncio

from factories import Site
from hlas.db import Database


async def count(operators: Database) -> int:
    row = await operators.one("select count(*) as n from messages")
    assert row is not None
    return int(row["n"])


async def test_same_key_once(site: Site, operators: Database) -> None:
    """Edge case 1: 32 concurrent posts, same key and payload: one row, 32 equal bodies."""
    answers = await asyncio.gather(*(site.send("hi", key="k") for _ in range(32)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert replayed.count("true") == 31
    assert await count(operators) == 1
