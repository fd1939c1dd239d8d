"""PostgreSQL alone: pgbench commits the same two rows, one message at a time."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.load import TEXT
from bench.store import Store
from hlas.store import embedded

CONVERSATIONS = 256
TENANT = "00000000-0000-7000-a000-000000000000"

# The rows of a message. The client knows its conversation, so no query is needed to find it. A
# sequence numbers the messages, which guarantees less than Hlas: it has gaps and no commit order.
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
    # Row by row, each in its own transaction, as in code without transactions.
    "single": f"{_PICK}{_MESSAGE.format(seq=_NUMBER)};\n{_KEY};\n",
    # One round trip, one statement, two rows: the minimum cost of a durable message.
    "bare": f"{_PICK}with message as ({_MESSAGE.format(seq=_NUMBER)}) {_KEY};\n",
    # The same rows as most code sends them.
    "transaction": f"{_PICK}begin;\n{_MESSAGE.format(seq=_NUMBER)};\n{_KEY};\ncommit;\n",
    # With the guarantee of Hlas: numbers without gaps, in commit order.
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


# Opening and preparing 64 connections takes a while, which is not measured.
WARM_UP_SECONDS = 2.0


@dataclass(frozen=True)
class Transactions:
    """Latencies are in seconds, and only measured with a given rate."""

    count: int
    rate: float
    p50: float = 0.0
    p99: float = 0.0


def prepare(store: Store, database: str) -> None:
    store.run(database, _PREPARE)


def run(
    store: Store, database: str, script: str, *, connections: int, seconds: float, rate: float = 0
) -> Transactions:
    """Run pgbench as superuser, without row-level security, with prepared statements."""
    before = _count_stored(store, database)
    seconds = max(seconds, 4)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "script.sql")
        file.write_text(SCRIPTS[script])
        command = [str(embedded.binary("pgbench")), "--no-vacuum", "--protocol=prepared"]
        command += [f"--client={connections}", "--jobs=1", f"--file={file}"]
        if rate:
            seconds += WARM_UP_SECONDS
            command += [f"--rate={rate:.0f}", "--log", f"--log-prefix={directory}/log"]
        command += [f"--time={seconds:.0f}", store.superuser_url(database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        times = _times(Path(directory)) if rate and not done.returncode else [0.0]
    if done.returncode:
        raise RuntimeError(f"pgbench failed: {done.stderr[-2000:]}")
    count = _number(r"transactions actually processed: (\d+)", done.stdout)
    achieved = _number(r"tps = ([\d.]+)", done.stdout)
    added = _count_stored(store, database) - before
    if added != count:
        raise RuntimeError(f"pgbench committed {count:.0f} and {added} are stored")
    p50, p99 = (times[int(len(times) * share)] for share in (0.5, 0.99))
    return Transactions(int(count), achieved, p50, p99)


def _times(directory: Path) -> list[float]:
    """Sorted durations in seconds, each from the first statement of a transaction."""
    lines = [line.split() for file in directory.glob("log*") for line in file.open()]
    # client, number, microseconds since it was due, script, second, microsecond, how late it was
    ended = [int(line[4]) + int(line[5]) / 1e6 for line in lines]
    begin = min(ended) + WARM_UP_SECONDS
    warm = [line for line, end in zip(lines, ended, strict=True) if end >= begin]
    return sorted((int(line[2]) - int(line[6])) / 1e6 for line in warm)


def _count_stored(store: Store, database: str) -> int:
    query = f"select count(*) from messages where tenant_id = '{TENANT}'"
    return int(store.rows(database, query)[0][0])


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"pgbench did not report {pattern}: {text[-1000:]}")
    return float(found[1])
