"""Unanswered questions of visitors, written straight into the database."""

from collections.abc import Sequence

import orjson
import uuid_utils

from drafts import make_session
from hlas.knowledge import unanswered
from hlas.knowledge.groups import Reason
from hlas.store.db import Confined, Database
from hlas.visitors.tokens import Session


async def write(
    operators: Database, session: Session, seq: int, text: str, role: str = "user", **meta: object
) -> None:
    await operators.execute(
        "insert into messages (tenant_id, id, conversation_id, seq, role, content, meta)"
        " values ($1, $2, $3, $4, $5, $6, $7)",
        session.tenant_id,
        str(uuid_utils.uuid7()),
        session.conversation_id,
        seq,
        role,
        text,
        orjson.loads(orjson.dumps(meta)),
    )


async def ask_in_vain(
    operators: Database,
    tenant_id: str,
    text: str,
    reason: Reason = "fallback",
    entries: Sequence[str] = (),
) -> str:
    """A visitor of this tenant asks and gets no good answer; the id of the conversation."""
    session = await make_session(operators, tenant_id)
    await operators.execute(
        "update conversations set last_seq = 1 where id = $1", session.conversation_id
    )
    await write(operators, session, 1, text)
    database = Confined(operators, tenant_id)
    await unanswered.record(database, tenant_id, session.conversation_id, 1, reason, entries)
    return session.conversation_id
