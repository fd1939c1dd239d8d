"""Runs in the writer: which messages start one, and which answers may still be written."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
import uuid_utils

from hlas.conversations import runs
from hlas.conversations.runs import Run
from hlas.store.db import Database
from hlas.store.drafts import Draft, Refusal, Written
from hlas.store.logins import APPLICATION, Logins
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session

OTHER = str(uuid_utils.uuid4())


class Listener:
    """Records what a writer reports."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.messages = 0
        self.waiting = 0

    def on_message(self, tenant_id: str, conversation_id: str) -> None:
        self.messages += 1

    def on_run(self, run: str) -> None:
        self.runs.append(Run.parse(run))

    def on_waiting_run(self) -> None:
        self.waiting += 1


class Worker:
    """A writer, and what it was told."""

    def __init__(self, url: str, session: Session) -> None:
        self.id = str(uuid_utils.uuid4())
        self.writer = Writer(Logins(url), APPLICATION, worker=self.id)
        self.listener = self.writer.listener = Listener()
        self._session = session

    def draft(self, role: str, run: Run | None = None, text: str = "hello") -> Draft:
        return Draft(
            tenant_id=self._session.tenant_id,
            conversation_id=self._session.conversation_id,
            generation=self._session.generation if role == "user" else None,
            message_id=str(uuid_utils.uuid7()),
            role=role,
            content=text,
            meta="{}",
            response="{}",
            run_id=run.id if run else None,
            attempt=run.attempt if run else None,
        )

    async def ask(self) -> Run:
        """The run that a visitor's message starts."""
        assert isinstance(await self.writer.write(self.draft("user")), Written)
        return self.listener.runs[-1]

    async def answer(self, run: Run) -> object:
        return await self.writer.write(self.draft("assistant", run))


@pytest_asyncio.fixture
async def worker(database_url: str, session: Session) -> AsyncIterator[Worker]:
    opened = Worker(database_url, session)
    yield opened
    await opened.writer.close()


async def states(operators: Database) -> list[str]:
    rows = await operators.all("select state from runs order by reply_to, state")
    return [row["state"] for row in rows]


async def expire(operators: Database) -> None:
    await operators.execute("update runs set lease_until = now() - interval '1 s'")


async def test_life_of_a_run(worker: Worker, operators: Database) -> None:
    """A message starts a run that its answer ends; an answer is written once."""
    run = await worker.ask()
    assert (run.first_seq, run.reply_to, run.epoch, run.attempt) == (1, 1, 0, 1)
    assert isinstance(await worker.answer(run), Written)
    assert await states(operators) == ["done"]
    assert await worker.answer(run) is Refusal.RUN_LOST
    assert worker.listener.messages == 2


async def test_next_run(worker: Worker, operators: Database) -> None:
    """Messages during a run share the next one, which can be claimed when the first is done."""
    first = await worker.ask()
    for _ in range(2):
        await worker.writer.write(worker.draft("user"))
    assert worker.listener.runs == [first]
    assert await states(operators) == ["running", "waiting"]
    assert await runs.claim(operators, OTHER) == []
    assert isinstance(await worker.answer(first), Written)
    assert worker.listener.waiting == 1
    [second] = await runs.claim(operators, OTHER)
    assert (second.first_seq, second.reply_to, second.attempt) == (2, 3, 1)


async def test_lost_lease(worker: Worker, operators: Database) -> None:
    """A worker whose run was taken over writes nothing."""
    run = await worker.ask()
    assert await runs.claim(operators, OTHER) == []
    await expire(operators)
    [taken] = await runs.claim(operators, OTHER)
    assert (taken.id, taken.attempt) == (run.id, 2)
    assert await worker.answer(run) is Refusal.RUN_LOST
    # Nor after it got the run back: that is another attempt.
    await expire(operators)
    await runs.claim(operators, worker.id)
    assert await worker.answer(run) is Refusal.RUN_LOST
    assert await states(operators) == ["running"]


async def test_renewed_lease(worker: Worker, operators: Database) -> None:
    """A lease is renewed for the runs that are named, and for no others."""
    run = await worker.ask()
    await expire(operators)
    await runs.renew(operators, worker.id, [])
    await runs.renew(operators, OTHER, [run])
    [again] = await runs.claim(operators, worker.id)
    await expire(operators)
    await runs.renew(operators, worker.id, [again])
    assert await runs.claim(operators, OTHER) == []


async def test_takeover(worker: Worker, operators: Database) -> None:
    """Edge case 59: in the batch of an operator's message and after it, no answer is written."""
    run = await worker.ask()
    spoken, answered = await asyncio.gather(
        worker.writer.write(worker.draft("operator")),
        worker.writer.write(worker.draft("assistant", run)),
    )
    assert isinstance(spoken, Written)
    assert answered is Refusal.TAKEN_OVER
    assert await states(operators) == ["cancelled"]
    await worker.writer.write(worker.draft("user"))
    assert len(worker.listener.runs) == 1, "a person answers"


async def test_release(worker: Worker, operators: Database) -> None:
    """What a worker releases can be claimed at once."""
    run = await worker.ask()
    await runs.release(operators, worker.id)
    [taken] = await runs.claim(operators, OTHER)
    assert (taken.id, taken.attempt) == (run.id, 2)
