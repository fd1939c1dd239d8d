"""Requests to OpenAI-compatible providers: chat completions, streamed, and others as a whole.

A request is never repeated once its body may have left, because the provider may bill for it.
Neither the key nor the prompt nor the answer is in an exception's text or in a log line.
"""

import asyncio
import select
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import aiohttp
import orjson
from aiohttp.abc import AbstractStreamWriter

from hlas.agent.providers.completions import (
    Completion,
    CompletionReader,
    ModelError,
    Tokens,
    ToolCall,
)
from hlas.agent.providers.models import Model

__all__ = ["ChatClient", "Completion", "ModelError", "Tokens", "ToolCall", "encode"]

Content = TypeVar("Content")

MOST_CONNECTIONS = 256
# Nobody bills these. Some bill a 400 of their content filter, and a 408.
UNPAID = frozenset({401, 402, 403, 404, 405, 413, 415, 422, 429})
# Less than the 5 s after which uvicorn, Node.js and llama.cpp close an idle connection.
KEEP_ALIVE_SECONDS = 4.0
# A host that does not answer must leave the next model its time.
CONNECT_SECONDS = 3.0
# After the finish reason only the usage follows, after [DONE] only the end of the body.
USAGE_SECONDS = 2.0
END_SECONDS = 0.05

# They reject `max_tokens` for their newer models; other providers know nothing else.
_RENAMED_AT = ("//api.openai.com/", ".openai.azure.com/")


def encode(
    model: Model,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]],
    max_tokens: int,
) -> bytes:
    """The body of a request: its length bounds the input tokens, `max_tokens` the output."""
    is_renamed = any(part in f"{model.base_url}/" for part in _RENAMED_AT)
    body: dict[str, object] = {
        "model": model.model,
        "max_completion_tokens" if is_renamed else "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": messages,
    }
    if tools:
        body["tools"] = tools
    return orjson.dumps(body)


class ChatClient:
    """One for each worker: its connections are shared by all runs."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def complete(
        self, model: Model, body: bytes, on_text: Callable[[str], None], *, seconds: float
    ) -> Completion:
        """Send a body made by `encode`, and call `on_text` with the text as it comes.

        Raises ModelError within `seconds`. Cancelling it, or an exception of `on_text`, closes the
        connection at once, so that the provider stops.
        """
        payload = _Payload(body)
        asked = orjson.loads(body)
        reader = CompletionReader(asked.get("max_tokens") or asked["max_completion_tokens"])
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._exchange(
                    model,
                    payload,
                    "/chat/completions",
                    lambda response: _read(response, reader, on_text, limit),
                )
        except aiohttp.ConnectionTimeoutError:
            raise ModelError("refused", may_be_paid=False) from None
        except TimeoutError:
            if not reader.has_finished:
                raise ModelError(
                    "timeout", is_timeout=True, may_be_paid=payload.is_written
                ) from None
        except aiohttp.ClientResponseError:
            # Not HTTP.
            raise ModelError("garbage") from None
        except (aiohttp.ClientError, OSError):
            if not payload.is_written:
                raise ModelError("refused", may_be_paid=False) from None
            if not reader.has_finished:
                raise ModelError("cut") from None
        return reader.complete()

    async def post(
        self, model: Model, path: str, body: bytes, *, seconds: float, most_bytes: int
    ) -> bytes:
        """Send a body and return the whole answer. Raises ModelError within `seconds`."""
        payload = _Payload(body)
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(
                    model, payload, path, lambda response: _read_all(response, most_bytes)
                )
        except aiohttp.ConnectionTimeoutError:
            raise ModelError("refused", may_be_paid=False) from None
        except TimeoutError:
            raise ModelError("timeout", is_timeout=True, may_be_paid=payload.is_written) from None
        except aiohttp.ClientResponseError:
            raise ModelError("garbage") from None
        except (aiohttp.ClientError, OSError):
            code = "cut" if payload.is_written else "refused"
            raise ModelError(code, may_be_paid=payload.is_written) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _exchange(
        self,
        model: Model,
        payload: "_Payload",
        path: str,
        read: Callable[[aiohttp.ClientResponse], Awaitable[Content]],
    ) -> Content:
        response = None
        try:
            response = await self._send(model, payload, path)
            return await read(response)
        except BaseException:
            # After the end of the body the connection may already be in use by another request.
            if response is None or response.connection is not None:
                payload.abort()
            if response is not None:
                response.close()
            raise

    async def _send(self, model: Model, payload: "_Payload", path: str) -> aiohttp.ClientResponse:
        try:
            return await self._post(model, payload, path)
        except aiohttp.ClientConnectionError:
            # The only retry: the server had closed the idle connection.
            if not payload.is_stale or payload.is_written:
                raise
        except ValueError:
            # The address or the key cannot be sent.
            raise ModelError("refused", may_be_paid=payload.is_written) from None
        return await self._post(model, payload, path)

    async def _post(self, model: Model, payload: "_Payload", path: str) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = _open_session()
        headers = {"Authorization": f"Bearer {model.key}"} if model.key else {}
        # An address such as https://api.mistral.ai/v1, with or without a slash at its end.
        return await self._session.post(
            f"{model.base_url.rstrip('/')}{path}",
            data=payload,
            headers=headers,
            allow_redirects=False,
        )


class _Payload(aiohttp.BytesPayload):
    """A request's body that knows whether it may have left this machine."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body, content_type="application/json")
        self.is_written = False
        self.is_stale = False
        self._transport: asyncio.WriteTransport | None = None

    def abort(self) -> None:
        """Close the connection without TLS's farewell, for which asyncio would wait up to 30 s."""
        if self._transport is not None:
            self._transport.abort()

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        # aiohttp sends the headers together with the body: nothing has been written so far.
        self._transport = writer.transport
        self.is_stale = _is_closed(writer.transport)
        if self.is_stale:
            raise ConnectionResetError
        self.is_written = True
        await super().write_with_length(writer, content_length)


def _is_closed(transport: asyncio.WriteTransport | None) -> bool:
    """Whether the server has closed the connection, even if the event loop has yet to notice."""
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()
    # Unread data does not mean that it is closed: a new TLS connection may have session tickets.
    poll.register(transport.get_extra_info("socket").fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def _open_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=MOST_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS
        ),
        # No cookie of one tenant's request is sent with another's.
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity", "User-Agent": "hlas"},
        timeout=aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=CONNECT_SECONDS, sock_read=None
        ),
        trust_env=False,
        auto_decompress=False,
    )


async def _read(
    response: aiohttp.ClientResponse,
    reader: CompletionReader,
    on_text: Callable[[str], None],
    limit: asyncio.Timeout,
) -> None:
    _require_success(response)
    while chunk := await response.content.readany():
        if text := reader.feed(chunk):
            on_text(text)
        if reader.has_finished:
            # The rest is read for the usage, and so that the connection can be used again.
            _shorten(limit, END_SECONDS if reader.is_done else USAGE_SECONDS)
    if text := reader.end():
        on_text(text)


async def _read_all(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    _require_success(response)
    chunks: list[bytes] = []
    while chunk := await response.content.readany():
        chunks.append(chunk)
        most_bytes -= len(chunk)
        if most_bytes < 0:
            raise ModelError("too_long")
    return b"".join(chunks)


def _require_success(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        may_be_paid = response.status not in UNPAID
        raise ModelError(f"status_{response.status}", may_be_paid=may_be_paid)


def _shorten(limit: asyncio.Timeout, seconds: float) -> None:
    when = asyncio.get_running_loop().time() + seconds
    limit.reschedule(min(when, limit.when() or when))
