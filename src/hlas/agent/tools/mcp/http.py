"""MCP over HTTP: each message is a POST, answered with JSON or a stream of events."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import orjson

from hlas.agent.tools.mcp.protocol import (
    LARGEST_ANSWER,
    Json,
    McpError,
    Refused,
    SessionLost,
    answer_server,
    is_request,
    parse,
    read_refusal,
    read_result,
)
from hlas.outbound.client import OutboundClient, OutboundError, Response

FAREWELL_SECONDS = 1.0
# Of the server, while it answers ours: each makes us send one.
MOST_REQUESTS = 8
_SESSION = "Mcp-Session-Id"
_VISIBLE = re.compile(r"[\x21-\x7e]{1,1000}")
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


class HttpTransport:
    def __init__(self, outbound: OutboundClient, url: str, headers: Mapping[str, str]) -> None:
        self._outbound = outbound
        self._url = url
        self._headers = headers
        self._session = ""

    async def exchange(self, message: Json, headers: Mapping[str, str], seconds: float) -> Json:
        number = message["id"]
        assert isinstance(number, int)
        if message["method"] in {"initialize", "server/discover"}:
            self._session = ""
        async with self._post(message, headers, seconds) as response:
            found = await self._find_answer(response, number, headers, seconds)
            if message["method"] == "initialize":
                self._session = _check_session(response.headers.get(_SESSION, ""))
        return read_result(found, number)

    async def notify(self, message: Json, headers: Mapping[str, str], seconds: float) -> None:
        async with self._post(message, headers, seconds):
            pass

    @asynccontextmanager
    async def _post(
        self, message: Json, headers: Mapping[str, str], seconds: float
    ) -> AsyncIterator[Response]:
        try:
            async with self._outbound.request(
                "POST",
                self._url,
                headers=self._all_headers(headers),
                body=orjson.dumps(message),
                seconds=seconds,
                largest=LARGEST_ANSWER,
            ) as response:
                await self._check(response)
                yield response
        except OutboundError as error:
            raise McpError(error.code, f"the server cannot be used: {error}") from None

    async def close(self) -> None:
        """Tell the server that the session is over; it may not care."""
        if not self._session:
            return
        try:
            async with self._outbound.request(
                "DELETE",
                self._url,
                headers=self._all_headers({}),
                seconds=FAREWELL_SECONDS,
                largest=LARGEST_ANSWER,
            ):
                self._session = ""
        except OutboundError:
            pass  # it ends by itself

    def _all_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        session = {_SESSION: self._session} if self._session else {}
        return {**self._headers, **_HEADERS, **headers, **session}

    async def _check(self, response: Response) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        if status in {401, 403}:
            raise McpError("denied", "the server does not accept our headers")
        if status == 404 and self._session:
            self._session = ""
            raise SessionLost
        if status >= 500 or status == 429:
            raise McpError(f"status_{status}", f"the server answered with status {status}")
        try:
            raise read_refusal(parse(await response.read()))
        except McpError as error:
            raise error if isinstance(error, Refused) else Refused() from None

    async def _find_answer(
        self, response: Response, number: int, headers: Mapping[str, str], seconds: float
    ) -> object:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            return parse(await response.read())
        if kind != "text/event-stream":
            raise McpError("garbage", "the server answers neither with JSON nor with events")
        requests = 0
        async for data in _read_events(response):
            message = parse(data)
            if is_request(message):
                assert isinstance(message, dict)
                requests += 1
                if requests > MOST_REQUESTS:
                    raise McpError("garbage", "the server asks instead of answering")
                with suppress(McpError):
                    await self.notify(answer_server(message), headers, seconds)
            elif isinstance(message, dict) and message.get("id") == number:
                return message
        raise McpError("cut", "the server ended its answer too early")


def _check_session(text: str) -> str:
    """A session's id is sent back, so it must be what a header can carry."""
    if text and not _VISIBLE.fullmatch(text):
        raise McpError("garbage", "the server's session has no valid id")
    return text


async def _read_events(response: Response) -> AsyncIterator[bytes]:
    """The data of each event."""
    waiting, data = bytearray(), []
    async for piece in response.pieces():
        waiting += piece
        if b"\n" not in piece:
            continue
        *lines, rest = waiting.split(b"\n")
        waiting = rest
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                data.append(bytes(text[5:].removeprefix(b" ")))
            elif not text and data:
                yield b"\n".join(data)
                data = []
