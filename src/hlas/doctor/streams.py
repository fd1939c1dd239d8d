"""Whether a conversation's stream arrives piece by piece through the public address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from hlas.doctor.finding import Finding
from hlas.doctor.website import Service, origin_of
from hlas.outbound.fetch import Fetched, Unreachable, fetch
from hlas.settings import ConfigurationError
from hlas.store.db import Queries, Row, log_in
from hlas.store.logins import OPERATOR, Logins
from hlas.visitors.keys import FixedKeys
from hlas.visitors.tokens import Tokens

queries = Queries.beside(__file__)

AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ConfigurationError)
TOKEN_SECONDS = 60
ORIGIN = "https://doctor.invalid"
# A proxy that delays the first frame this long buffers the stream.
SECONDS = 5.0
FRAME = b"\ndata: "

UNBUFFERED = (
    "let the proxy or CDN pass text/event-stream on as it comes: nginx `proxy_buffering off`, "
    "HAProxy without `wait-for-body`; ops/ has samples"
)
UNCOMPRESSED = (
    "exclude text/event-stream from compression: nginx `gzip_types`, HAProxy `compression type`, "
    "Caddy `encode` with a matcher"
)


async def check(logins: Logins | None, service: Service | None) -> Finding:
    if service is None:
        return Finding("stream", "skip", "the service's address was not given with --url")
    if logins is None or not service.secret or origin_of(service.url) is None:
        return Finding("stream", "skip", "it takes a database, a signing secret and a valid --url")
    try:
        async with _open_conversation(logins) as conversation:
            if conversation is None:
                found = "there is no active tenant yet: add one, then try again"
                return Finding("stream", "skip", found)
            return await _check(service, conversation)
    except AWAY:
        return Finding("stream", "skip", "the database cannot be queried")


async def _check(service: Service, conversation: Row) -> Finding:
    """Open a stream as a visitor does."""
    try:
        async with asyncio.timeout(SECONDS):
            return _judge(await _open(service, conversation))
    except TimeoutError:
        return Finding(
            "stream",
            "fail",
            f"no frame within {SECONDS:.0f} s: a proxy holds streams back, so answers come late",
            UNBUFFERED,
        )
    except Unreachable as error:
        fix = "start it, and check the address, the proxy in front of it and its certificate"
        return Finding("stream", "fail", f"{service.url} cannot be reached: {error}", fix)


@asynccontextmanager
async def _open_conversation(logins: Logins) -> AsyncIterator[Row | None]:
    """A conversation of the doctor's own: whatever answers at the address gets a token for it."""
    connection = await log_in(logins, OPERATOR)
    try:
        row: Row | None = await connection.fetchrow(queries.add_conversation, ORIGIN)
        try:
            yield row
        finally:
            if row is not None:
                await connection.execute(queries.remove_conversation, row["tenant_id"], row["id"])
    finally:
        await connection.close()


async def _open(service: Service, conversation: Row) -> Fetched:
    tokens = Tokens(FixedKeys((service.secret,)), TOKEN_SECONDS)
    token = tokens.issue(
        conversation["tenant_id"],
        conversation["id"],
        ORIGIN,
        conversation["token_generation"],
    )
    return await fetch(
        service.at(f"/widget/conversations/{conversation['id']}/stream"),
        until=FRAME,
        Authorization=f"Bearer {token}",
        Accept="text/event-stream",
        # As browsers send it: a proxy may compress, and then wait until there is enough of it.
        Accept_Encoding="gzip",
    )


def _judge(answer: Fetched) -> Finding:
    kind = answer.headers.get_content_type()
    if answer.status != 200 or kind != "text/event-stream":
        found = f"a stream is answered with status {answer.status} ({kind})"
        fix = "look for the request in the log; if it is not there, let the proxy pass it on"
        return Finding("stream", "fail", found, fix)
    if coding := answer.headers.get("Content-Encoding"):
        found = f"a proxy compresses streams ({coding[:40]}), and may hold them back for that"
        return Finding("stream", "fail", found, UNCOMPRESSED)
    if FRAME not in answer.body:
        fix = "let the proxy keep streams open: its timeouts must be 30 s or more"
        return Finding("stream", "fail", "the stream ends before its first frame", fix)
    return Finding("stream", "ok", "a stream arrives piece by piece")
