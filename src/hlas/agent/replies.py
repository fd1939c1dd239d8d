"""Waiting for the answer to a visitor's messages, for clients without a stream."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import orjson

from hlas import errors
from hlas.conversations.live import Live
from hlas.conversations.readers import Key
from hlas.store.db import Database, Queries, Row
from hlas.store.drafts import Written
from hlas.visitors.sessions import require_standing
from hlas.visitors.tokens import Session

queries = Queries.beside(__file__)

WAIT_SECONDS = 60.0
# Fallback poll, for an answer whose change was never published.
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25

# A reply has no payload, so all replies have the same hash. The hashed text is not JSON, so no
# message can have this hash.
REQUEST_HASH: Final = b"\x01" + hashlib.sha256(b"reply").digest()

# Starts a run for messages that have none.
Start = Callable[[str, str], Awaitable[None]]


async def reply(
    database: Database, live: Live, start: Start, session: Session, key: str | None
) -> Written:
    """Wait for the answer to the visitor's last message, or replay the stored response of a key."""
    changed = asyncio.Event()
    with live.watch(key_of(session), changed.set):
        async with asyncio.timeout(WAIT_SECONDS) as limit:
            try:
                for looks in count():
                    changed.clear()
                    row = await _read(database, session, key)
                    if row["response"] is not None:
                        return _replay(row)
                    if row["status"] != "open":
                        raise errors.ConversationClosed
                    if row["message_id"] is not None:
                        return await _store(database, session, key, _respond(session, row))
                    _require_answerable(row)
                    if row["state"] is None:
                        await start(*key_of(session))
                        _require_run(await _read(database, session, key))
                    await _wait(changed)
                    # Text that grows changes the conversation 20 times a second.
                    await asyncio.sleep(min(looks * PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
            except TimeoutError:
                if limit.expired():
                    raise errors.Unavailable from None
                raise
    raise AssertionError


def key_of(session: Session) -> Key:
    return session.tenant_id, session.conversation_id


async def find_replay(database: Database, session: Session, key: str) -> Written | None:
    """The stored response of a key, for a retry that a limit would refuse."""
    row = await _read(database, session, key)
    return _replay(row) if row["response"] is not None else None


async def _read(database: Database, session: Session, key: str | None) -> Row:
    row = await database.one(queries.read_reply, session.tenant_id, session.conversation_id, key)
    return require_standing(session, row)


def _require_answerable(row: Row) -> None:
    """Raise if no answer will come."""
    if row["asked"] is None or row["state"] == "stopped":
        raise errors.UserMessageNotFound
    if row["handler"] != "agent":
        raise errors.TakenOver


def _require_run(row: Row) -> None:
    """Raise if nothing waits for an answer, as after a person's message."""
    if row["state"] is None and row["message_id"] is None:
        raise errors.UserMessageNotFound


async def _wait(changed: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await changed.wait()
    except TimeoutError:
        pass


def _respond(session: Session, row: Row) -> str:
    meta = row["meta"]
    response = {
        "conversation_id": session.conversation_id,
        "message_id": row["message_id"],
        "text": row["content"],
        "source": meta.get("source", "knowledge"),
        "suggestions": meta.get("suggestions", []),
    }
    return orjson.dumps(response).decode()


async def _store(database: Database, session: Session, key: str | None, response: str) -> Written:
    if key is None:
        return Written(response, replayed=False)
    row = await database.one(
        queries.store_response,
        session.tenant_id,
        session.conversation_id,
        key,
        REQUEST_HASH,
        orjson.Fragment(response),
    )
    if row is None or row["request_hash"] != REQUEST_HASH:
        raise errors.IdempotencyKeyConflict
    return Written(row["response"], replayed=not row["is_new"])


def _replay(row: Row) -> Written:
    if row["request_hash"] != REQUEST_HASH:
        raise errors.IdempotencyKeyConflict
    return Written(row["response"], replayed=True)
