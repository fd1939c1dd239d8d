"""Requests through the express lane and through the framework, and their log lines."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import orjson

from factories import Site
from raw_http import request

# A request with Expect is not handled by the lane.
ORDINARY = [("Expect", "100-continue")]
VARYING = {"date", "x-request-id", "retry-after", "ratelimit"}


async def send(site: Site, *, ordinary: bool, text: str = "hello", **extra: str) -> httpx.Response:
    headers = [*site.headers(**extra).items(), *(ORDINARY if ordinary else ())]
    return await site.live.client.post(
        "/widget/messages", headers=headers, content=orjson.dumps({"text": text})
    )


def shape(answer: httpx.Response) -> tuple[int, dict[str, str], list[str]]:
    """Everything that must not depend on which of the two handled the request."""
    headers = {name: value for name, value in answer.headers.items() if name not in VARYING}
    return answer.status_code, headers, sorted(answer.json())


def read_log(site: Site, answer: httpx.Response) -> list[dict[str, Any]]:
    """The log lines of a request, without values that differ each time."""
    identifier = answer.headers["x-request-id"]
    varying = {"time", "request_id", "duration_ms"}
    return [
        {name: value for name, value in line.items() if name not in varying}
        for line in site.live.events()
        if line.get("request_id") == identifier
    ]


async def send_both(site: Site, **options: str) -> list[httpx.Response]:
    answers = [await send(site, ordinary=ordinary, **options) for ordinary in (False, True)]
    assert shape(answers[0]) == shape(answers[1])
    assert read_log(site, answers[0]) == read_log(site, answers[1])
    assert read_log(site, answers[0]), "nothing was logged"
    return answers


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.01)


def raw(site: Site, text: str, key: str, **changes: str) -> bytes:
    body = orjson.dumps({"text": text})
    headers = {**site.headers(), "Idempotency-Key": key, "Content-Length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in (headers | changes).items()]
    return request("POST", "/widget/messages", *lines, body=body)


async def read_answers(reader: asyncio.StreamReader, count: int) -> list[dict[str, Any]]:
    found = []
    async with asyncio.timeout(20):
        for _ in range(count):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found.append(orjson.loads(await reader.readexactly(length)))
    return found
