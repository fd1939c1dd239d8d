"""PostgreSQL alone: pgbench committing the same two rows, one message at a time."""

import re
import subprocess
import tempfile
from dataclasses import dataclass

from bench.load import TEXT
from bench.store import Store
from hlas import postgres

CONVERSATIONS = 256
TENANT = "00000000-0000-7000-a000-000000000000"

# The rows of a message. The client knows its conversation, so finding it costs no query; a plain
# sequence numbers the messages, which is less than we do: gaps stay and order is not by commit.
_CONVERSATION = "('00000000-0000-7000-a000-' || lpad(:n::text, 12, '0'))::uuid"
_MESSAGE = (
    "insert into messages (tenant_id, id, conversation_id, seq, role, content) "
    f"values ('{TENANT}', uuidv7(), {_CONVERSATION}, {{seq}}, 'user', '{TEXT}')"
)
_KEY = (
    (
        "insert into idempotency_keys (tenant_id, conversation_id, key, request_hash, response) "
        f"values ('{TENANT}', {_CONVERSATION}, gen_random_uuid()::text, "
        'sha256(\'33 bytes\'), \'{{"conversation_id":"019a0000-0000-7000-8000-000000000000",'
        '"message_id":"019a0000-0000-7000-8000-000000000000"}}\')'
    )
    .replace("{{", "{")
    .replace("}}", "}")
)
_NUMBER = "nextval('bench_seq')"
_PICK = f"\\set n random(1, {CONVERSATIONS})\n"

SCRIPTS = {
    # Row by row, each in a transaction of its own, as code does that has none.
    "single": f"{_PICK}{_MESSAGE.format(seq=_NUMBER)};\n{_KEY};\n",
    # One round trip, one statement, two rows: the least a durable message can cost.
    "bare": f"{_PICK}with message as ({_MESSAGE.format(seq=_NUMBER)}) {_KEY};\n",
    # The same rows as most code sends them.
    "transaction": f"{_PICK}begin;\n{_MESSAGE.format(seq=_NUMBER)};\n{_KEY};\ncommit;\n",
    # With what we promise besides: numbers without gaps, in commit order.
    "gapless": (
        f"{_PICK}with number as (update conversations set last_seq = last_seq + 1, "
        f"last_message_at = now() where tenant_id = '{TENANT}' and id = {_CONVERSATION} "
        f"returning last_seq), message as ("
        + _MESSAGE.format(seq="(select last_seq from number)")
        + f") {_KEY};\n"
    ),
}

_PREPARE = f"""
insert into tenants (id, slug, name) values ('{TENANT}', 'pgbench', 'pgbench')
    on conflict do nothing;
insert into conversations (tenant_id, id, origin)
select '{TENANT}', {_CONVERSATION.replace(":n", "n")}, 'https://pgbench.example'
from generate_series(1, {CONVERSATIONS}) n on conflict do nothing;
create sequence if not exists bench_seq start 1000000000 cache 1;
"""


@dataclass(frozen=True)
class Transactions:
    count: int
    rate: float


def prepare(store: Store, database: str) -> None:
    store.run(database, _PREPARE)


def run(
    store: Store, database: str, script: str, *, connections: int, seconds: float
) -> Transactions:
    """As superuser, so without row-level security, with prepared statements."""
    before = _stored(store, database)
    # Sixty-four connections take a while to open, which does not count.
    seconds = max(seconds, 4)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(SCRIPTS[script])
        file.flush()
        command = [str(postgres.binary("pgbench")), "--no-vacuum", "--protocol=prepared"]
        command += [f"--client={connections}", "--jobs=1", f"--time={seconds:.0f}"]
        command += ["--file", file.name, store.superuser_url(database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pgbench failed: {done.stderr[-2000:]}")
    count = _number(r"transactions actually processed: (\d+)", done.stdout)
    rate = _number(r"tps = ([\d.]+)", done.stdout)
    added = _stored(store, database) - before
    if added != count:
        raise RuntimeError(f"pgbench committed {count:.0f} and {added} are stored")
    return Transactions(int(count), rate)


def _stored(store: Store, database: str) -> int:
    query = f"select count(*) from messages where tenant_id = '{TENANT}'"
    return int(store.rows(database, query)[0][0])


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"pgbench said nothing about {pattern}: {text[-1000:]}")
    return float(found[1])
