"""Questions that the knowledge did not answer."""

from typing import Any
from uuid import UUID

import orjson
import uuid_utils

from drafts import make_session
from hlas.knowledge import unanswered
from hlas.store.db import Database
from hlas.visitors.tokens import Session

ONE, TWO = str(UUID(int=1)), str(UUID(int=2))


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


async def read_rows(operators: Database) -> list[Any]:
    rows = await operators.all(
        "select conversation_id, seq, reason, entries from unanswered order by created_at, seq"
    )
    return [(row["seq"], row["reason"], [str(one) for one in row["entries"]]) for row in rows]


async def test_record(database: Database, operators: Database) -> None:
    """The strongest reason is kept, only visitors' messages of the tenant count, and what was
    taken back is gone unless it met the fallback.
    """
    session, other = await make_session(operators), await make_session(operators)
    tenant_id, conversation_id = session.tenant_id, session.conversation_id
    await write(operators, session, 1, "Do you have a sauna?")
    await write(operators, session, 2, "I do not know.", "assistant", reply_to=1, source="fallback")
    await write(operators, session, 3, "When do you open?")
    await write(operators, session, 4, "In May.", "assistant", reply_to=3, source="knowledge")

    await unanswered.record(database, tenant_id, conversation_id, 1, "none_of_these", [ONE])
    await unanswered.record(database, tenant_id, conversation_id, 1, "fallback")
    assert await read_rows(operators) == [(1, "none_of_these", [ONE])]
    await unanswered.record(database, tenant_id, conversation_id, 1, "thumbs_down", [TWO])
    await unanswered.record(database, tenant_id, conversation_id, 3, "thumbs_down", [ONE])
    # An answer, a message that is not there, and the conversation of another tenant.
    await unanswered.record(database, tenant_id, conversation_id, 2, "fallback")
    await unanswered.record(database, tenant_id, conversation_id, 9, "fallback")
    await unanswered.record(database, other.tenant_id, conversation_id, 3, "fallback")
    both = [(1, "thumbs_down", [TWO]), (3, "thumbs_down", [ONE])]
    assert await read_rows(operators) == both

    await unanswered.take_back(database, other.tenant_id, conversation_id, 3, "thumbs_down")
    await unanswered.take_back(database, tenant_id, conversation_id, 3, "fallback")
    assert await read_rows(operators) == both
    for seq in (1, 3):
        await unanswered.take_back(database, tenant_id, conversation_id, seq, "thumbs_down")
    assert await read_rows(operators) == [(1, "fallback", [TWO])]
