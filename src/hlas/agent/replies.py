"""Replies to visitors: the agent's answer to the last message, stored once for each key."""

import hashlib
from typing import Final

import orjson
import uuid_utils

from hlas import errors
from hlas.agent import Agent, Answer, Question
from hlas.conversations import messages
from hlas.knowledge import language
from hlas.knowledge.language import Language
from hlas.store.db import Database, Queries, Row
from hlas.store.writer import Draft, Writer, Written
from hlas.visitors.sessions import require_standing
from hlas.visitors.tokens import Session

queries = Queries.beside(__file__)

FALLBACK: Final[dict[Language, str]] = {
    "cs": "Na tohle zatím neznám odpověď. Zkuste se prosím zeptat jinak, nebo nás kontaktujte.",
    "en": "I do not know the answer to that yet. Please ask in other words, or contact us.",
}

# A reply has no payload, so all replies have the same hash. The hashed text is not JSON, so no
# message can have this hash.
REQUEST_HASH: Final = b"\x01" + hashlib.sha256(b"reply").digest()


async def reply(
    database: Database, writer: Writer, agent: Agent, session: Session, key: str | None
) -> Written:
    """Answer the visitor's last message, or replay the stored response of the same key."""
    row = await database.one(queries.read_question, session.tenant_id, session.conversation_id, key)
    row = require_standing(session, row)
    if row["response"] is not None:
        return _replay(row)
    if row["status"] != "open":
        raise errors.ConversationClosed
    if row["content"] is None:
        raise errors.UserMessageNotFound
    question = Question(
        session.tenant_id, session.conversation_id, row["content"], _choose_language(row)
    )
    answer = await agent.answer(question)
    return await messages.store(writer, _draft(session, key, row, question, answer))


def _replay(row: Row) -> Written:
    if row["request_hash"] != REQUEST_HASH:
        raise errors.IdempotencyKeyConflict
    return Written(row["response"], replayed=True)


def _choose_language(row: Row) -> Language:
    """The detected language of the message, else the language of the widget."""
    return language.detect(row["content"]) or ("cs" if row["language"] == "cs" else "en")


def _draft(
    session: Session, key: str | None, row: Row, question: Question, answer: Answer
) -> Draft:
    text = answer.text
    source = answer.source
    if text is None:
        text, source = row["fallback_text"] or FALLBACK[question.language], "fallback"
    message_id = str(uuid_utils.uuid7())
    response = {
        "conversation_id": session.conversation_id,
        "message_id": message_id,
        "text": text,
    }
    meta = {
        "reply_to": row["seq"],
        "entries": answer.entries,
        "confidence": round(answer.confidence, 2),
        "source": source,
    }
    return Draft(
        tenant_id=session.tenant_id,
        conversation_id=session.conversation_id,
        generation=session.generation,
        message_id=message_id,
        role="assistant",
        content=text,
        meta=orjson.dumps(meta).decode(),
        response=orjson.dumps(response).decode(),
        key=key,
        request_hash=REQUEST_HASH if key is not None else None,
    )
