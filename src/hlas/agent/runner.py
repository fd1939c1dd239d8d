"""Runs the agent for the runs that this worker owns, and stores what it says."""

import asyncio
import time
from asyncio import FIRST_COMPLETED
from contextlib import nullcontext, suppress
from contextvars import Context
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

import asyncpg
import orjson
import uuid_utils

from hlas import errors, log
from hlas.agent import Agent, Answer, Listener, Question
from hlas.agent.questions import find_fallback, make_question
from hlas.conversations import runs
from hlas.conversations.live import Live
from hlas.conversations.runs import Run
from hlas.conversations.speeches import Speech
from hlas.knowledge import unanswered
from hlas.store.db import Database
from hlas.store.drafts import Draft, Refusal, Written
from hlas.store.writer import Writer

TICK_SECONDS = 0.5
# After this time, check whether the run was stopped or cancelled.
PATIENCE_SECONDS = 0.1
# The fallback sentence is sent after so many attempts that asked the agent, or attempts in all.
MOST_ATTEMPTS = 5
MOST_CLAIMS = 20
# Answers of one tenant that are made at once; further runs wait.
TENANT_ANSWERS = 64
# Answers of models in a worker: slow ones do not hold up those from the knowledge.
MODEL_ANSWERS = 256
WRITE_ATTEMPTS = 20
WRITE_PAUSE_SECONDS = 0.25
CLOSE_SECONDS = 1.0
# How long a stopped agent may take to settle what it has spent.
STOP_SECONDS = 2.0

Interruption: TypeAlias = Literal["stopped", "cancelled"] | None
# How a run ended; "left" is for another worker.
RunOutcome: TypeAlias = Literal["done", "stopped", "cancelled", "left"]


class Meter(Protocol):
    def message(self, role: str) -> None: ...

    def run(self, source: str, outcome: str) -> None: ...

    def first_token(self, seconds: float) -> None: ...


class Runner:
    """The runs of one worker. It listens to the writer, which starts them."""

    def __init__(
        self,
        live: Live,
        writer: Writer,
        agent: Agent,
        database: Database,
        operators: Database,
        meter: Meter,
    ) -> None:
        self._live = live
        self._writer = writer
        self._agent = agent
        self._database = database
        self._operators = operators
        self._meter = meter
        self._tasks: dict[asyncio.Task[None], Run] = {}
        self._model_turns = asyncio.Semaphore(MODEL_ANSWERS)
        self._tenant_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._claiming: asyncio.Task[None] | None = None
        # A run may wait that the claim under way has not seen.
        self._is_due = False
        self._is_closing = False

    def on_message(self, tenant_id: str, conversation_id: str) -> None:
        self._live.touch(tenant_id, conversation_id)

    def on_run(self, run: str) -> None:
        self.start(Run.parse(run))

    def on_waiting_run(self) -> None:
        """Look for runs that nobody works on, now."""
        self._is_due = True
        if not self._is_closing and (self._claiming is None or self._claiming.done()):
            self._claiming = asyncio.create_task(self._claim_due(), context=Context())

    def start(self, run: Run) -> None:
        if not self._is_closing:
            task = asyncio.create_task(self._run(run), context=Context())
            self._tasks[task] = run
            task.add_done_callback(self._tasks.pop)

    async def answer_unanswered(self, tenant_id: str, conversation_id: str) -> None:
        """Answer visitors' messages that have no run, as those from before runs existed."""
        await runs.start(self._database, tenant_id, conversation_id)
        self.on_waiting_run()

    async def tick(self) -> None:
        """Keep the runs of this worker, and take over those of workers that are gone."""
        if self._tasks:
            held = tuple(self._tasks.values())
            for run in await runs.renew(self._operators, self._live.worker, held):
                # Whoever makes its answer looks at it again.
                self._live.notice((run.tenant_id, run.conversation_id))
        await self._claim()

    async def _claim_due(self) -> None:
        while self._is_due and not self._is_closing:
            self._is_due = False
            try:
                await self._claim()
            except errors.Unavailable:
                return  # the next tick tries again, and reports it
            except asyncpg.PostgresError as error:
                log.error("claim_failed", error=type(error).__name__, where=log.find_place(error))

    async def _claim(self) -> None:
        """Take over all runs that nobody works on."""
        is_full = True
        while is_full and not self._is_closing:
            held = tuple(self._tasks.values())
            claimed = await runs.claim(self._operators, self._live.worker, held)
            for run in claimed:
                self.start(run)
            is_full = len(claimed) == runs.CLAIMED

    async def finish(self) -> None:
        """Finish what is nearly finished, and begin nothing more."""
        self._is_closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        ending = [*self._tasks, *([self._claiming] if self._claiming else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def release(self) -> None:
        """Leave the other runs to another worker, at once."""
        with suppress(errors.Unavailable, asyncpg.PostgresError):
            await runs.release(self._operators, self._live.worker)

    async def _run(self, run: Run) -> None:
        log.enter(
            {
                "request_id": run.id,
                "tenant_id": run.tenant_id,
                "conversation_id": run.conversation_id,
            }
        )
        started = time.perf_counter()
        log.info("run_started", attempt=run.attempt)
        speech = self._live.speak(run, str(uuid_utils.uuid7()))
        answer: Answer | None = None
        outcome: RunOutcome = "left"
        try:
            async with self._find_turns(run.tenant_id):
                answer, outcome = await self._answer(run, speech, started)
        except Exception as error:  # noqa: BLE001  # the lease ends, and another attempt is made
            log.error("run_failed", error=type(error).__name__, where=log.find_place(error))
        finally:
            self._live.hush(speech)
            self._meter.run(answer.source if answer else "none", outcome)
            log.info(
                "run_finished",
                outcome=outcome,
                duration_ms=round((time.perf_counter() - started) * 1000, 2),
                **_summarise(answer),
            )
        if outcome in {"stopped", "cancelled"}:
            self.on_waiting_run()
        if answer is not None and answer.source == "fallback" and outcome == "done":
            await self._record_unanswered(run, answer)

    async def _record_unanswered(self, run: Run, answer: Answer) -> None:
        """The visitor has the answer already: this may fail."""
        key = (run.tenant_id, run.conversation_id, run.reply_to)
        try:
            await unanswered.record(self._database, *key, "fallback", answer.entries)
        except (errors.Unavailable, asyncpg.PostgresError) as error:
            log.warning("unanswered_skipped", error=type(error).__name__)

    def _find_turns(self, tenant_id: str) -> asyncio.Semaphore:
        return self._tenant_turns.setdefault(tenant_id, asyncio.Semaphore(TENANT_ANSWERS))

    async def _answer(
        self, run: Run, speech: Speech, started: float
    ) -> tuple[Answer | None, RunOutcome]:
        # After many failures run without the texts: they may be the cause.
        texts = runs.TEXTS if run.attempt <= MOST_CLAIMS else 0
        briefing = await runs.brief(self._database, run, self._live.worker, texts=texts)
        if not briefing.is_wanted or (texts and not briefing.texts):
            return None, await self._end(run, "cancelled")
        if briefing.is_stopping:
            return None, await self._end(run, "stopped")
        question = make_question(run, briefing)
        stage = _Stage(speech)
        answering = asyncio.create_task(self._ask(run, question, stage))
        try:
            interruption = await self._watch(run, answering)
        finally:
            answering.cancel()
        if interruption:
            # The agent says what it has so far, and keeps its books.
            await asyncio.wait({answering}, timeout=STOP_SECONDS)
        if interruption == "cancelled" or (interruption and stage.is_empty):
            return None, await self._end(run, interruption)
        answer = stage.so_far if interruption else answering.result()
        if answer.text is None or not answer.text.strip():
            text = find_fallback(briefing, question.language)
            answer = replace(answer, text=text, source="fallback")
        assert answer.text is not None
        meta = _describe(run, answer)
        if interruption:
            meta["stopped"] = True
        if not speech.complete(answer.text):
            # The agent failed in mid-sentence. Readers are told that what it said is void.
            meta["retracted"] = True
        self._meter.first_token(speech.first_words_at - started)
        if answer.trace:
            await runs.store_trace(self._operators, run, self._live.worker, answer.trace)
        draft = _draft(run, speech, answer.text, meta)
        return answer, await self._store(run, draft, interruption)

    async def _ask(self, run: Run, question: Question, listener: Listener) -> Answer:
        """Whatever goes wrong in an agent, the visitor gets an answer."""
        if run.attempt == 1 or (run.asked < MOST_ATTEMPTS and run.attempt <= MOST_CLAIMS):
            if run.attempt > 1:
                await runs.count_attempt(self._operators, run, self._live.worker)
            try:
                async with self._model_turns if question.has_model else nullcontext():
                    return await self._agent.answer(question, listener)
            except Exception as error:  # noqa: BLE001  # see above
                log.error("agent_failed", error=type(error).__name__, where=log.find_place(error))
        return Answer(None, "fallback", 0.0)

    async def _watch(self, run: Run, answering: "asyncio.Task[Answer]") -> Interruption:
        """Wait for the answer; end early if the visitor stops it or the run is lost."""
        await asyncio.wait({answering}, timeout=PATIENCE_SECONDS)
        changed = asyncio.Event()
        # It may have changed before anybody watched.
        changed.set()
        with self._live.watch((run.tenant_id, run.conversation_id), changed.set):
            while not answering.done():
                if not changed.is_set():
                    waiting = asyncio.create_task(changed.wait())
                    try:
                        await asyncio.wait({answering, waiting}, return_when=FIRST_COMPLETED)
                    finally:
                        waiting.cancel()
                    continue
                changed.clear()
                with suppress(errors.Unavailable):
                    worker = self._live.worker
                    briefing = await runs.brief(self._database, run, worker, texts=0)
                    if not briefing.is_wanted:
                        return "cancelled"
                    if briefing.is_stopping:
                        return "stopped"
        return None

    async def _store(self, run: Run, draft: Draft, interruption: Interruption) -> RunOutcome:
        """Write the answer. A retry is safe: the run is done once its message is committed."""
        for _ in range(WRITE_ATTEMPTS):
            outcome = await self._writer.write(draft)
            if isinstance(outcome, Written):
                self._meter.message("assistant")
                return interruption or "done"
            if outcome is not Refusal.UNAVAILABLE:
                return await self._end(run, "cancelled")
            await asyncio.sleep(WRITE_PAUSE_SECONDS)
        return "left"

    async def _end(self, run: Run, state: runs.Ending) -> RunOutcome:
        await runs.end(self._operators, run, self._live.worker, state)
        self._live.touch(run.tenant_id, run.conversation_id)
        return state


class _Stage:
    """An answer in the making, as its run shows it."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._left: Answer | None = None
        self._is_void = False

    def say(self, piece: str) -> None:
        self._speech.say(piece)

    def show(self, frame: str) -> None:
        self._speech.show(frame)

    def withdraw(self) -> None:
        self._is_void = True

    def leave(self, answer: Answer) -> None:
        self._left = answer

    @property
    def is_empty(self) -> bool:
        return self._is_void or not self._speech.text.strip()

    @property
    def so_far(self) -> Answer:
        """What was said, and no more: the agent may know words that nobody has seen."""
        answer = self._left or Answer(None, "agent", 0.0)
        return replace(answer, text=self._speech.text)


def _describe(run: Run, answer: Answer) -> dict[str, object]:
    """The metadata of an answer, which its readers see."""
    meta: dict[str, object] = {
        "reply_to": run.reply_to,
        "entries": answer.entries,
        "confidence": round(answer.confidence, 2),
        "source": answer.source,
        "suggestions": [{"text": text} for text in answer.suggestions],
    }
    if answer.reason:
        meta["reason"] = answer.reason
    if answer.sources:
        meta["sources"] = answer.sources
    if answer.confirmation:
        meta["confirmation"] = answer.confirmation
    if answer.steps:
        meta["steps"] = answer.steps
        meta["tools_used"] = answer.tools_used
        meta["usage"] = answer.usage.describe()
    return meta


def _summarise(answer: Answer | None) -> dict[str, object]:
    """For the log: codes and counts alone."""
    if answer is None:
        return {"source": ""}
    summary: dict[str, object] = {"source": answer.source}
    if answer.reason:
        summary["reason"] = answer.reason
    if answer.steps:
        usage = answer.usage.describe()
        summary |= {"steps": answer.steps, "tools": len(answer.tools_used), **usage}
    return summary


def _draft(run: Run, speech: Speech, text: str, meta: dict[str, object]) -> Draft:
    return Draft(
        tenant_id=run.tenant_id,
        conversation_id=run.conversation_id,
        generation=None,
        message_id=speech.message_id,
        role="assistant",
        content=text,
        meta=orjson.dumps(meta).decode(),
        response="{}",
        run_id=run.id,
        attempt=run.attempt,
    )
