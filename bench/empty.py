"""The server and middleware of Hlas around a route that does nothing: what HTTP alone costs."""

import argparse

from fastapi import Request, Response
from uvicorn import Server

from hlas import body, server
from hlas.app import from_environment


async def answer(request: Request) -> Response:
    await body.read(request.receive)
    return Response(b"{}", media_type="application/json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    app = from_environment()
    app.add_api_route("/empty", answer, methods=["POST"])
    Server(server.config(app, host="127.0.0.1", port=parser.parse_args().port)).run()


if __name__ == "__main__":
    main()
