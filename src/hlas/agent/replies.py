"""Waiting for the answer to a visitor's messages, for clients without a stream."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import orjson

from hlas import errors
from hlas.agent.options import Options
from hlas.conversations.live import Live
from hlas.conversations.readers import Key
from hlas.store.db import Database, Queries, Row
from hlas.store.drafts import Written
from hlas.visitors.sessions import require_standing
from hlas.visitors.tokens import Session

queries = Queries.beside(__file__)

# Longer than the longest run, whose answer at its time limit must not be missed.
WAIT_SECONDS = 70.0
# Fallback poll, for an answer whose change was never published.
LOOK_SECONDS = 3.0
PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25

# A reply has no payload, so all replies have the same hash. The hashed text is not JSON, so no
# message can have this hash.
REQUEST_HASH: Final = b"\x01" + hashlib.sha256(b"reply").digest()

# Starts a run for messages that have none.
Start = Callable[[str, str], Awaitable[None]]
# The response to a found answer, as JSON.
Render = Callable[[Row], str]

FAILURES: Final[dict[str, type[errors.HlasError]]] = {
    "model_failed": errors.ModelFailed,
    "steps": errors.ModelFailed,
    "model_timeout": errors.ModelTimeout,
    "budget": errors.BudgetUsedUp,
}


async def reply(
    database: Database, live: Live, start: Start, session: Session, key: str | None
) -> Written:
    """Wait for the answer to the visitor's last message, or replay the stored response of a key."""
    return await _answer_once(
        database, live, start, session, key, REQUEST_HASH, lambda row: _respond(session, row)
    )


async def reply_in_full(
    database: Database,
    live: Live,
    start: Start,
    session: Session,
    key: str | None,
    options: Options,
    request_id: str,
) -> Written:
    """The same, with both messages and what the answer took."""
    # With its options: a key that was used with others is refused.
    wanted = orjson.dumps(options.model_dump(exclude_defaults=True), option=orjson.OPT_SORT_KEYS)
    return await _answer_once(
        database,
        live,
        start,
        session,
        key,
        b"\x02" + hashlib.sha256(wanted).digest(),
        lambda row: render(session, row, options, request_id),
    )


async def _answer_once(
    database: Database,
    live: Live,
    start: Start,
    session: Session,
    key: str | None,
    request_hash: bytes,
    respond: Render,
) -> Written:
    row = await wait(database, live, start, session, key=key)
    if row["response"] is not None:
        return _replay(row, request_hash)
    response = respond(row)
    if key is None:
        return Written(response, replayed=False)
    stored = await database.one(
        queries.store_response,
        session.tenant_id,
        session.conversation_id,
        key,
        request_hash,
        orjson.Fragment(response),
    )
    if stored is None or stored["request_hash"] != request_hash:
        raise errors.IdempotencyKeyConflict
    return Written(stored["response"], replayed=not stored["is_new"])


async def wait(
    database: Database,
    live: Live,
    start: Start,
    session: Session,
    *,
    key: str | None = None,
    message_id: str | None = None,
) -> Row:
    """Until a visitor's message, the last one by default, has its answer, or the key a response."""
    changed = asyncio.Event()
    try:
        with live.watch(key_of(session), changed.set):
            async with asyncio.timeout(WAIT_SECONDS):
                for looks in count():
                    changed.clear()
                    row = await read(database, session, key, message_id)
                    if _is_settled(row):
                        return row
                    if row["state"] is None:
                        await start(*key_of(session))
                        _require_run(await read(database, session, key, message_id))
                    await _wait(changed)
                    # Text that grows changes the conversation 20 times a second.
                    await asyncio.sleep(min(looks * PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
    except TimeoutError:
        pass
    raise errors.Unavailable


def key_of(session: Session) -> Key:
    return session.tenant_id, session.conversation_id


async def find_replay(database: Database, session: Session, key: str) -> Written | None:
    """The stored response of a key, for a retry that a limit would refuse."""
    row = await read(database, session, key)
    return _replay(row, REQUEST_HASH) if row["response"] is not None else None


async def is_used(database: Database, session: Session, key: str) -> bool:
    """Whether the key has a stored response: a request with it starts nothing new."""
    return (await read(database, session, key))["response"] is not None


async def require_debug(database: Database, session: Session) -> None:
    row = await database.one(queries.may_debug, session.tenant_id)
    if row is None or not row["is_debug"]:
        raise errors.DebugNotAllowed


async def read(
    database: Database, session: Session, key: str | None = None, message_id: str | None = None
) -> Row:
    row = await database.one(
        queries.read_reply, session.tenant_id, session.conversation_id, key, message_id
    )
    return require_standing(session, row)


def _is_settled(row: Row) -> bool:
    """Whether there is an answer; raise if none will come."""
    if row["response"] is not None:
        return True
    if row["status"] != "open":
        raise errors.ConversationClosed
    if row["message_id"] is not None:
        return True
    if row["asked"] is None or row["state"] == "stopped":
        raise errors.UserMessageNotFound
    if row["handler"] != "agent":
        raise errors.TakenOver
    return False


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


def render(session: Session, row: Row, options: Options, request_id: str) -> str:
    """Both messages, and what the answer took. Raise if it must be the model's and is not."""
    meta = row["meta"]
    reason = meta.get("reason")
    if reason and options.on_failure == "error":
        raise FAILURES[reason]
    response: dict[str, object] = {
        "conversation_id": session.conversation_id,
        "user_message": orjson.Fragment(row["user_message"]),
        "assistant_message": orjson.Fragment(row["assistant_message"]),
        "meta": {
            "request_id": request_id,
            "run_id": row["run_id"],
            "steps": meta.get("steps", 0),
            "tools_used": meta.get("tools_used", []),
            "source": meta.get("source", "knowledge"),
            **({"reason": reason} if reason else {}),
            "usage": meta.get("usage", {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}),
        },
    }
    if options.debug:
        response["trace"] = row["trace"] or []
    return orjson.dumps(response).decode()


def _replay(row: Row, request_hash: bytes) -> Written:
    if row["request_hash"] != request_hash:
        raise errors.IdempotencyKeyConflict
    return Written(row["response"], replayed=True)
