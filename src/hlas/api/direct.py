"""Exact paths straight to their handlers."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from hlas.http.asgi import Application, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]


class DirectRoutes:
    """Innermost: matching every route and solving no dependencies cost more than most answers."""

    def __init__(self, app: Application, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        self.app = app
        self.endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = None
        if scope["type"] == "http":
            endpoint = self.endpoints.get((scope["method"], scope["path"]))
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
