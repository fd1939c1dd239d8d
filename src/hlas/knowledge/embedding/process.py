"""The embedding process: a model, tenants' vectors, and a socket for the workers of this host.

It has no database and no network, and ends with the worker that started it.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hlas import log
from hlas.knowledge.embedding.matrices import Matrices, Matrix
from hlas.knowledge.embedding.protocol import (
    LONGEST_TEXT,
    MOST_TEXTS,
    REFUSED,
    Compare,
    Describe,
    Embed,
    Keep,
    Outcome,
    ProtocolError,
    Put,
    Reply,
    Request,
    encode,
    read_request,
)

if TYPE_CHECKING:
    from hlas.knowledge.embedding.model import Model

# A worker has at most client.MOST_QUESTIONS of them, and one to send vectors.
MOST_CONNECTIONS = 128
# The queue of questions; further ones are refused at once.
MOST_WAITING = 32
IDLE_SECONDS = 30.0
LOW_PRIORITY = 10


class Server:
    """Questions have a thread of their own, so that they do not wait for vectors of entries."""

    def __init__(self, model: "Model | None") -> None:
        self._model = model
        self._matrices = Matrices()
        # Matrices are used in this thread only.
        self._questions = ThreadPoolExecutor(1)
        self._batches = ThreadPoolExecutor(1, initializer=_lower_priority)
        self._waiting = 0
        self._connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends or sends anything invalid."""
        self._connections += 1
        try:
            while self._connections <= MOST_CONNECTIONS:
                async with asyncio.timeout(IDLE_SECONDS):
                    request, body = await read_request(reader)
                writer.write(await self._answer(request, body))
                async with asyncio.timeout(IDLE_SECONDS):
                    await writer.drain()
        except (asyncio.IncompleteReadError, TimeoutError, OSError):
            pass  # the worker has left
        except ProtocolError:
            log.warning("embedding_request_invalid")
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _answer(self, request: Request, body: bytes) -> bytes:
        try:
            match request:
                case Describe():
                    return encode(self._reply("ok"))
                case Embed():
                    return await self._run(self._batches, lambda: self._embed(request.texts))
                case Compare():
                    return await self._run(self._questions, lambda: self._compare(request, body))
                case Put():
                    return await self._run(self._questions, lambda: self._put(request, body))
                case Keep():
                    return await self._run(self._questions, lambda: self._keep(request))
        except ValueError:
            raise ProtocolError from None
        except Exception as error:  # noqa: BLE001  # one bad text must not end the process
            log.error("embedding_failed", error=type(error).__name__, where=log.find_place(error))
            return encode(self._reply("failed"))

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], bytes]) -> bytes:
        if self._waiting >= MOST_WAITING:
            return encode(self._reply("busy"))
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            self._waiting -= 1

    def _embed(self, texts: list[str]) -> bytes:
        if self._model is None or len(texts) > MOST_TEXTS:
            raise ValueError
        vectors = [
            self._model.embed(text[:LONGEST_TEXT], is_question=False).astype(np.float16).tobytes()
            for text in texts
        ]
        return encode(self._reply("ok"), b"".join(vectors))

    def _compare(self, request: Compare, body: bytes) -> bytes:
        if self._model is not None and request.model.partition("+")[0] != self._model.name:
            return encode(self._reply("other_model"))
        matrix = self._matrices.open(request.tenant, request.model)
        if matrix.cursor < request.cursor or len(matrix) != request.entries:
            return encode(self._reply("behind", matrix))
        if matrix.is_too_large:
            return encode(self._reply("too_large", matrix))
        if self._model is not None:
            vector = self._model.embed(request.text[:LONGEST_TEXT], is_question=True)
        else:
            vector = _read_vectors(body).astype(np.float32)
        ids, scores = matrix.search(vector)
        self._matrices.make_room()
        return encode(replace(self._reply("ok", matrix), ids=ids, scores=scores))

    def _put(self, request: Put, body: bytes) -> bytes:
        matrix = self._matrices.open(request.tenant, request.model)
        if min(request.counts, default=0) < 0 or len(request.ids) != len(request.counts):
            raise ValueError
        # Another worker may have sent it meanwhile.
        if request.since == matrix.cursor < request.until:
            matrix.put(request.ids, request.counts, _read_vectors(body))
            matrix.cursor = request.until
            self._matrices.make_room()
        return encode(self._reply("ok", matrix))

    def _keep(self, request: Keep) -> bytes:
        matrix = self._matrices.open(request.tenant, request.model)
        matrix.keep(set(request.ids))
        return encode(self._reply("ok", matrix))

    def _reply(self, outcome: Outcome, matrix: Matrix | None = None) -> Reply:
        model = self._model
        return Reply(
            outcome,
            model.name if model else "",
            model.dimensions if model else 0,
            model.is_english if model else False,
            matrix.cursor if matrix else 0,
            len(matrix) if matrix else 0,
            [],
            [],
        )


def _read_vectors(body: bytes) -> np.ndarray:
    numbers = np.frombuffer(body, np.float16)
    if not np.isfinite(numbers).all():
        raise ValueError
    return numbers


def _lower_priority() -> None:
    """Lower the priority of this thread, so that visitors do not wait for it. Linux only."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)


async def _run(path: Path, model: "Model | None") -> None:
    loop = asyncio.get_running_loop()
    parent = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(parent), sys.stdin)
    server = Server(model)
    # Renamed into place, so that workers never find the socket of a process that is gone.
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    await asyncio.start_unix_server(server.serve, new)
    new.chmod(0o600)
    new.rename(path)
    log.info("embedding_ready", model=model.name if model else "", pid=os.getpid())
    # The worker writes nothing: its end is the end of the pipe.
    await parent.read()


def _load(directory: Path | None) -> "Model":
    # Where an endpoint makes the vectors, its libraries need not be loaded.
    from hlas.knowledge.embedding.model import ModelRefused, load_model  # noqa: PLC0415

    try:
        return load_model(directory)
    except ModelRefused as error:
        log.error("embedding_model_refused", reason=str(error))
        log.flush()
        sys.exit(REFUSED)


def main() -> None:
    parser = argparse.ArgumentParser(prog="hlas.knowledge.embedding")
    parser.add_argument("socket", type=Path)
    parser.add_argument("--model-dir", type=Path)
    parser.add_argument("--without-model", action="store_true")
    arguments = parser.parse_args()
    log.configure("info", "json")
    model = None if arguments.without_model else _load(arguments.model_dir)
    asyncio.run(_run(arguments.socket, model))
    log.flush()
    # Threads may be busy with a text.
    os._exit(0)
