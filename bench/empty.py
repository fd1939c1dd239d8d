"""The server and middleware of Hlas around an empty route: the cost of HTTP alone."""

import argparse
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.middleware import Middleware
from uvicorn import Server

from hlas.app import from_environment
from hlas.http import server
from hlas.http.asgi import REQUEST, Application, Scope, Send
from hlas.http.request import Receive

# Once as an ordinary route, once without the router, which is the minimum cost of a route.
ROUTED, DIRECT = "/empty", "/empty/direct"


async def answer(request: Request) -> Response:
    await request.scope[REQUEST].read()
    return Response(b"{}", media_type="application/json")


@dataclass
class Shortcut:
    app: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == DIRECT:
            response = await answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    app = from_environment()
    app.add_api_route(ROUTED, answer, methods=["POST"])
    app.user_middleware.append(Middleware(Shortcut))
    Server(server.config(app, host="127.0.0.1", port=parser.parse_args().port)).run()


if __name__ == "__main__":
    main()
