"""Paths that no route has, refused before a limit is consumed or a route is looked for."""

import re

from hlas.errors import NotFound
from hlas.http.asgi import Application, Receive, Scope, Send

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class PathMiddleware:
    """A decoded path with a control character is a 404.

    The router's patterns end in `$`, which also matches before a final newline, while limits and
    proxies compare paths as they are.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _CONTROL.search(scope["path"]):
            raise NotFound
        await self.app(scope, receive, send)
