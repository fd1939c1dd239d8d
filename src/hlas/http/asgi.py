"""The ASGI driver: what is not in the lane, through the web framework and back."""

import re
from collections.abc import Awaitable, Callable, Container, MutableMapping
from typing import Any, TypeAlias

from hlas import errors, log
from hlas.http import body
from hlas.http.answer import Answer, Finish
from hlas.http.cors import PREFLIGHT, Readers, is_preflight
from hlas.http.request import Message, Receive, Request

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

# Where a scope holds the request that it is about.
REQUEST = "hlas.request"


class Driver:
    """Outermost: hands a request to the framework, and completes whatever is answered."""

    def __init__(
        self,
        app: Application,
        finish: Finish,
        readers: Readers,
        routes: Container[str],
        largest: int,
    ) -> None:
        """`routes` are the paths that are routes as they stand, `largest` is that of a body."""
        self.app = app
        self._finish = finish
        self._readers = readers
        self._routes = routes
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = scope[REQUEST] = scope.get(REQUEST) or request_of(scope)
        request.read = body.reader(request, receive, self._largest)
        request.wait_lost = body.loss_waiter(receive)
        if request.path in self._routes:
            request.route = request.path
        request.scope = scope
        log.enter(request.context)
        sending = _Sending(send, request, self._finish)
        try:
            await self._answer(scope, request, receive, sending)
        finally:
            self._finish.account(request, sending.status)

    async def _answer(
        self, scope: Scope, request: Request, receive: Receive, send: "_Sending"
    ) -> None:
        try:
            _require_printable(request.path)
            if is_preflight(request):
                await self._readers.require_listed(request)
                await send.answer(Answer(204, tuple(PREFLIGHT), b""))
                return
            body.check(request, self._largest)
            await self.app(scope, receive, send)
        except Exception as error:
            if send.status:
                self._finish.report(request, error)
                raise
            await send.answer(self._finish.explain(request, error))


class _Sending:
    """The way back: every answer leaves with the headers that all answers have."""

    def __init__(self, send: Send, request: Request, finish: Finish) -> None:
        self._send = send
        self._request = request
        self._finish = finish
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            answer = Answer(self.status, tuple(message["headers"]), b"")
            message["headers"] = await self._finish.headers(self._request, answer)
        await self._send(message)

    async def answer(self, answer: Answer) -> None:
        length = (b"content-length", b"%d" % len(answer.body))
        headers = answer.headers if answer.status == 204 else (*answer.headers, length)
        await self({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self({"type": "http.response.body", "body": answer.body})


def _require_printable(path: str) -> None:
    """A control character in a decoded path is a 404.

    The router's patterns end in `$`, which also matches before a final newline, while limits and
    proxies compare paths as they are.
    """
    if _CONTROL.search(path):
        raise errors.NotFound


def request_of(scope: Scope) -> Request:
    """For servers that are not ours; ours has made the request before."""
    return Request(
        scope["method"],
        scope["path"],
        scope["query_string"],
        scope["headers"],
        scope["client"][0] if scope.get("client") else "",
        scope["scheme"],
    )
