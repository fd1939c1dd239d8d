"""How PostgreSQL finds the runs of a conversation, whatever other tenants have."""

import asyncpg
import pytest
import pytest_asyncio

import drafts
from hlas.agent import replies
from hlas.conversations import live
from hlas.privacy import erasure
from hlas.store.db import Database, log_in
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.visitors.tokens import Session

RUNS = 20_000

FILL = """
with c as (
    insert into conversations (tenant_id, id, origin)
    select $1::text::uuid, gen_random_uuid(), 'https://x.example' from generate_series(1, 2000)
    returning tenant_id, id
)
insert into runs (tenant_id, id, conversation_id, first_seq, reply_to, epoch, state, message_id)
select tenant_id, gen_random_uuid(), id, n, n, 0, 'done', gen_random_uuid()
from c, generate_series(1, $2::integer / 2000) as n
"""
# What a foreign key looks for when its conversation is deleted.
CASCADE = "select from runs where tenant_id = $1 and conversation_id = $2"


@pytest_asyncio.fixture
async def asked(session: Session, operators: Database, database_url: str) -> Session:
    """A conversation with an answer, beside a busy tenant and within one."""
    other = await drafts.make_session(operators)
    for tenant_id in (other.tenant_id, session.tenant_id):
        await operators.execute(FILL, tenant_id, RUNS)
    await operators.execute(
        """
        with counted as (update conversations set last_seq = 100 where id = $2::text::uuid),
        written as (
            insert into messages (tenant_id, id, conversation_id, seq, role, content, meta)
            select $1::text::uuid, gen_random_uuid(), $2::text::uuid, n, 'assistant', 'hello',
                   jsonb_build_object('reply_to', n)
            from generate_series(1, 100) as n
            returning tenant_id, id, conversation_id, seq
        )
        insert into runs (tenant_id, id, conversation_id, first_seq, reply_to, epoch, state,
                          message_id)
        select tenant_id, id, conversation_id, seq, seq, 0, 'done', id from written
        """,
        session.tenant_id,
        session.conversation_id,
    )
    owner = await asyncpg.connect(database_url)
    await owner.execute("analyze")
    await owner.close()
    return session


async def explain(url: str, role: str, query: str, *arguments: object) -> str:
    connection = await log_in(Logins(url), role)
    try:
        await connection.execute(f"select set_config('app.tenant_id', '{arguments[0]}', false)")
        rows = await connection.fetch(f"explain (costs off) {query}", *arguments)
    finally:
        await connection.close()
    return "\n".join(row[0] for row in rows)


def require_index(plan: str) -> None:
    assert "Seq Scan on runs" not in plan, plan
    # By the tenant alone it would go through all of a busy tenant's runs.
    lines = plan.splitlines()
    found = [number for number, line in enumerate(lines) if "ix_runs__reply_to" in line]
    assert found, plan
    for at in found:
        [condition] = [line for line in lines[at : at + 2] if "Index Cond" in line]
        assert "conversation_id = " in condition, plan


@pytest.mark.parametrize("name", ["stream", "reply", "erasure", "foreign key"])
async def test_runs_of_a_conversation(asked: Session, database_url: str, name: str) -> None:
    """Edge case 51: streams, replies and erasure take an index, with 20 000 runs beside them."""
    tenant_id, conversation_id = asked.tenant_id, asked.conversation_id
    plans: dict[str, tuple[str, str, tuple[object, ...]]] = {
        "stream": (
            APPLICATION,
            live.queries.read_changes,
            (tenant_id, [conversation_id], [0], [0], [0], [0], 100, 1_000),
        ),
        "reply": (
            APPLICATION,
            replies.queries.read_reply,
            (tenant_id, conversation_id, None, None),
        ),
        "foreign key": (OPERATOR, CASCADE, (tenant_id, conversation_id)),
    }
    if name == "erasure":
        connection = await log_in(Logins(database_url), OPERATOR)
        rows = await connection.fetch(
            f"explain (costs off) {erasure.queries.remove_conversations}",
            [tenant_id],
            [conversation_id],
        )
        await connection.close()
        # It may start from the frames, which are few.
        assert "Seq Scan on runs" not in "\n".join(row[0] for row in rows)
        return
    role, query, arguments = plans[name]
    require_index(await explain(database_url, role, query, *arguments))
