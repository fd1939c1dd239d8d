"""One attempt at an answer with a language model: model, tools, model, answer."""

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from hlas import log
from hlas.agent import (
    Answer,
    Confirmation,
    Listener,
    Question,
    Reason,
    Source,
    Usage,
    consents,
    prompts,
)
from hlas.agent.agent_settings import Assignment
from hlas.agent.filter.guard import CanaryTripped, Guard
from hlas.agent.knowledge import Finding, is_pleasantry, look_up_all
from hlas.agent.money.spend import BudgetUsedUp, Ledger, Payer, Reservation
from hlas.agent.passages import MOST_FOR_A_TEXT, is_relevant, make_passage
from hlas.agent.prompts import MOST_PASSAGES, Passage, Turn
from hlas.agent.providers import chat
from hlas.agent.providers.chat import ChatClient, Completion, ModelError, Tokens, ToolCall
from hlas.agent.providers.models import Model
from hlas.agent.ranker import Ranker
from hlas.agent.speaker import Speaker
from hlas.agent.tools.toolbox import Caller, Toolbox, ToolResult, Tools
from hlas.errors import Unavailable
from hlas.knowledge.ranking import Match
from hlas.settings import Settings
from hlas.store.db import Database, Queries

queries = Queries.beside(__file__)

TOOL_SECONDS = 10.0
# With less time than this another model is not asked.
LEAST_SECONDS = 2.0
SETTLE_ATTEMPTS = 20
SETTLE_PAUSE_SECONDS = 0.25
# These find only what the passages already have, or give up: alone they are no reason to ask.
UNHELPFUL: Final = frozenset({"search_knowledge", "hand_over"})
UNKNOWN_TOOL: Final = "unknown"

_CITATION = re.compile(r"\s?\[\d{1,3}\]")


class GiveUp(Exception):
    """The model does not answer; the knowledge does."""

    def __init__(self, reason: Reason | None) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Means:
    """What every attempt works with."""

    client: ChatClient
    ledger: Ledger
    toolbox: Toolbox
    ranker: Ranker
    operators: Database
    settings: Settings


class Attempt:
    """One answer in the making."""

    def __init__(
        self, means: Means, question: Question, assignment: Assignment, listener: Listener
    ) -> None:
        settings, options = means.settings, question.options
        self._means = means
        self._question = question
        self._assignment = assignment
        self._models = list(assignment.models)
        most_steps = settings.agent_max_steps
        self._most_steps = min(
            most_steps, options.max_steps or most_steps, assignment.settings.max_steps or most_steps
        )
        limit = settings.agent_timeout_seconds
        self.seconds = min(options.timeout_ms / 1000, limit) if options.timeout_ms else limit
        self._deadline = time.monotonic() + self.seconds
        hosts = (*assignment.domains, *assignment.settings.link_hosts)
        self._speaker = Speaker(listener, Guard(hosts, assignment.canary, ()))
        self._usage = Usage()
        self._steps = 0
        self._calls = 0
        self._names: set[str] = set()
        self._used: list[str] = []
        self._confidence = 0.0
        self._result: consents.Result | None = None
        self.trace: list[dict[str, object]] = []
        self.messages: list[dict[str, object]] = []
        # What the knowledge has on the question; empty before it was searched.
        self.findings: list[Finding] = []
        self.passages: list[Passage] = []

    async def run(self) -> Answer:
        question, assignment = self._question, self._assignment
        caller = Caller(
            question.tenant_id,
            question.conversation_id,
            question.run_id,
            question.language,
            is_trial=not question.reply_to,
        )
        self.passages = await self._find_passages()
        self._speaker.add(self.passages)
        tools = await self._means.toolbox.open(caller, assignment.settings, self.passages)
        self._names = {_name_of(definition) for definition in tools.definitions()}
        if not self.passages and self._names <= UNHELPFUL and not await self._is_reply():
            raise GiveUp(None)
        self.messages = prompts.build(
            assignment,
            question.language,
            await self._read_history(),
            self.passages,
            nonce=secrets.token_hex(8),
        )
        try:
            if self._is_decision:
                await self._carry_out(tools)
            return await self._loop(tools)
        except CanaryTripped:
            # Nothing of an answer that gives away its prompt is to be believed.
            log.error("canary_tripped", model=self._models[0].name)
            raise GiveUp("model_failed") from None

    @property
    def _is_decision(self) -> bool:
        return bool(self._question.confirmed or self._question.declined)

    async def _is_reply(self) -> bool:
        """Whether the message may mean something to the model alone: "yes" to what it has asked."""
        if self._is_decision:
            return True
        if self.findings[-1].decision.small_talk != "assent":
            return False
        question = self._question
        async with self._means.ranker.take_turn(question.tenant_id) as database:
            row = await database.one(
                queries.last_answer,
                question.tenant_id,
                question.conversation_id,
                question.reply_to,
            )
        return row is not None and bool(row["is_models"])

    @property
    def _seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    async def _loop(self, tools: Tools) -> Answer:
        for _ in range(self._most_steps):
            completion = await self._ask(tools.definitions())
            if not completion.calls:
                return self._finish(completion)
            confirmation = await self._call(tools, completion)
            if confirmation is not None:
                return self._ask_consent(confirmation)
        completion = await self._ask([])
        if completion.calls:
            raise GiveUp("steps")
        return self._finish(completion)

    async def _find_passages(self) -> list[Passage]:
        self.findings = await look_up_all(self._means.ranker, self._question)
        if is_pleasantry(self.findings) and not self._is_decision:
            raise GiveUp(None)
        matches = [
            match for finding in self.findings for match in finding.matches[:MOST_FOR_A_TEXT]
        ]
        matches.sort(key=lambda match: -match.confidence)
        self._confidence = max((match.confidence for match in matches), default=0.0)
        found: dict[str, Match] = {}
        for match in filter(is_relevant, matches):
            found.setdefault(match.entry_id, match)
        # No more than the prompt has room for: what the model is not shown, it cannot cite.
        best = list(found.values())[:MOST_PASSAGES]
        return [make_passage(*one) for one in enumerate(best, start=1)]

    async def _read_history(self) -> list[Turn]:
        """The conversation up to the question, without the numbers of earlier citations."""
        question = self._question
        wanted = question.options.max_history_messages
        most = self._means.settings.agent_max_history_messages if wanted is None else wanted
        # The messages that have no answer yet are always among them.
        most = max(most, len(question.earlier)) + 1
        async with self._means.ranker.take_turn(question.tenant_id) as database:
            rows = await database.all(
                queries.read_turns,
                question.tenant_id,
                question.conversation_id,
                question.reply_to,
                most,
            )
        turns = [
            Turn(row["role"], _CITATION.sub("", row["content"]))
            if row["role"] == "assistant"
            else Turn(row["role"], row["content"])
            for row in rows
        ]
        return turns or [Turn("user", text) for text in (*question.context, question.text)]

    async def _ask(self, tools: Sequence[dict[str, object]]) -> Completion:
        """One step; the next model is tried only if nothing was sent and nothing may be paid."""
        while True:
            model = self._models[0]
            try:
                completion = await self._request(model, tools)
            except ModelError as error:
                log.warning("model_failed", model=model.name, code=error.code)
                is_safe = not error.may_be_paid and not self._speaker.text
                has_another = len(self._models) > 1 and self._seconds_left > LEAST_SECONDS
                if not is_safe or not has_another:
                    raise GiveUp("model_timeout" if error.is_timeout else "model_failed") from None
                del self._models[0]
            else:
                if completion.finish == "content_filter":
                    raise GiveUp("model_failed")
                return completion

    async def _request(self, model: Model, tools: Sequence[dict[str, object]]) -> Completion:
        means, question = self._means, self._question
        most = means.settings.agent_max_output_tokens
        body = chat.encode(model, self.messages, tools, most)
        payer = Payer(question.tenant_id, question.conversation_id, question.run_id)
        try:
            reservation = await means.ledger.reserve(payer, model, body, most)
        except BudgetUsedUp:
            raise GiveUp("budget") from None
        started = time.perf_counter()
        self._steps += 1
        self._speaker.start_step()
        tokens: Tokens | None = None
        is_released = False
        try:
            completion = await means.client.complete(
                model, body, self._speaker.hear, seconds=self._seconds_left
            )
            tokens = completion.tokens
        except ModelError as error:
            is_released, tokens = not error.may_be_paid, error.tokens
            raise
        finally:
            # Also when the visitor has stopped the answer: the books are kept to the end.
            settling = self._settle(reservation, model, tokens, is_released=is_released)
            await asyncio.shield(asyncio.ensure_future(settling))
            self._note("model", started, name=model.name, tokens=tokens)
        return completion

    async def _settle(
        self, reservation: Reservation, model: Model, tokens: Tokens | None, *, is_released: bool
    ) -> None:
        ledger = self._means.ledger
        for _ in range(SETTLE_ATTEMPTS):
            try:
                if is_released:
                    await ledger.release(reservation)
                else:
                    self._usage += await ledger.settle(reservation, model, tokens)
            except Unavailable:
                await asyncio.sleep(SETTLE_PAUSE_SECONDS)
            else:
                return
        # What is never settled counts in full.
        self._usage += Usage(cost=reservation.amount)

    async def _call(self, tools: Tools, completion: Completion) -> Confirmation | None:
        """Call the tools; a call that needs the visitor's consent ends the answer instead."""
        calls = tuple(map(self._rename, completion.calls))
        for call in calls:
            if tools.is_acting(call.name) and (arguments := _parse(call.arguments)) is not None:
                return await self._offer(tools, call, arguments)
        self.messages.append(replace(completion, calls=calls).to_message())
        results = await asyncio.gather(*(self._use(tools, call) for call in calls))
        for call, result in zip(calls, results, strict=True):
            self._take_result(call, result)
        return None

    def _rename(self, call: ToolCall) -> ToolCall:
        """With an id of ours, which readers see, and a form that every provider takes back."""
        self._calls += 1
        name = call.name if call.name in self._names else UNKNOWN_TOOL
        return replace(call, id=f"call-{self._calls}", name=name)

    async def _use(self, tools: Tools, call: ToolCall, *, has_consent: bool = False) -> ToolResult:
        started = time.perf_counter()
        self._speaker.show_tool(call.id, call.name)
        if tools.is_acting(call.name) and not has_consent:
            result = ToolResult(consents.NOT_SHOWN, "invalid")
        else:
            seconds = min(TOOL_SECONDS, self._seconds_left)
            result = await tools.call(call.name, call.arguments, seconds=seconds)
        self._speaker.hide_tool(call.id)
        if call.name != UNKNOWN_TOOL:
            self._used.append(call.name)
        self._note("tool", started, name=call.name, outcome=result.outcome)
        return result

    def _take_result(self, call: ToolCall, result: ToolResult) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
        # What is found again keeps its number.
        known = {one.number for one in self.passages}
        self.passages += [one for one in result.passages if one.number not in known]
        self._speaker.add(result.passages)

    async def _offer(
        self, tools: Tools, call: ToolCall, arguments: dict[str, object]
    ) -> Confirmation:
        # The visitor will read them.
        guard = Guard((), self._assignment.canary, ())
        guard.feed(orjson.dumps(arguments).decode())
        guard.finish()
        title = tools.describe(call.name)
        return await consents.offer(
            self._means.operators, self._question, call.name, title, arguments
        )

    async def _carry_out(self, tools: Tools) -> None:
        """Do what the visitor has confirmed, once; or tell the model that it was declined."""
        operators, question = self._means.operators, self._question
        decision = await consents.decide(operators, question)
        if decision is None:
            # Decided before, too old, or of another conversation.
            self._tell("This decision does not count any more; do not repeat the action.")
            return
        arguments = orjson.dumps(decision.arguments).decode()
        call = self._rename(ToolCall("", decision.tool, arguments))
        if question.declined:
            self._result = "declined"
            self._tell("The visitor declined.", call)
            return
        self._result = "started"
        result = await self._use(tools, call, has_consent=True)
        self._result = "done" if result.outcome == "ok" else "failed"
        await consents.record(operators, question, self._result)
        self.messages.append(_repeat(call))
        self._take_result(call, result)

    def _tell(self, text: str, call: ToolCall | None = None) -> None:
        call = call or self._rename(ToolCall("", UNKNOWN_TOOL, "{}"))
        self.messages.append(_repeat(call))
        self._take_result(call, ToolResult(text, "error"))

    async def report_decision(self) -> Answer | None:
        """Without the model: what became of the decision, if the question is one."""
        if not self._is_decision:
            return None
        result = self._result or await consents.recall(self._means.operators, self._question)
        if result is None:
            return None
        return Answer(consents.REPORTS[result][self._question.language], "agent", 1.0)

    def _ask_consent(self, confirmation: Confirmation) -> Answer:
        self._speaker.end()
        if not self._speaker.text:
            self._speaker.say(consents.QUESTION[self._question.language])
        return replace(self.make_answer(), confirmation=confirmation)

    def _finish(self, completion: Completion) -> Answer:
        self._speaker.end()
        if not self._speaker.text:
            raise GiveUp("model_failed")
        if completion.finish == "length":
            self._speaker.say(" …")
        answer = self.make_answer()
        self._speaker.show_sources(answer.sources)
        return answer

    def make_answer(self) -> Answer:
        """What the model has said so far, with its sources."""
        cited = sorted(self._speaker.list_cited(), key=lambda one: one.number)
        answer = Answer(
            self._speaker.text,
            "agent",
            self._confidence,
            entries=tuple(dict.fromkeys(one.entry_id for one in cited if one.kind == "entry")),
            sources=tuple(Source(one.number, one.title, one.url) for one in cited),
        )
        return self.complete(answer, None)

    def complete(self, answer: Answer, reason: Reason | None) -> Answer:
        """With what was tried and paid."""
        may_trace = self._assignment.settings.is_debug and self._question.options.debug
        return replace(
            answer,
            reason=reason,
            steps=self._steps,
            tools_used=tuple(dict.fromkeys(self._used)),
            usage=self._usage,
            trace=tuple(self.trace) if may_trace else (),
        )

    def show_messages(self) -> list[dict[str, object]]:
        """The prompt and what followed, without its secret."""
        canary = self._assignment.canary
        return [
            {**one, "content": one["content"].replace(canary, "(secret)")}
            if isinstance(one["content"], str)
            else one
            for one in self.messages
        ]

    def _note(
        self,
        kind: str,
        started: float,
        *,
        name: str,
        outcome: str | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        step: dict[str, object] = {
            "kind": kind,
            "name": name,
            "duration_ms": round((time.perf_counter() - started) * 1000, 1),
        }
        if outcome:
            step["outcome"] = outcome
        if tokens:
            step |= {"input_tokens": tokens.input, "output_tokens": tokens.output}
        self.trace.append(step)


def _parse(arguments: str) -> dict[str, object] | None:
    """The arguments of a call that a visitor can be shown; None: they are not to be shown."""
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) and consents.is_shown_whole(parsed) else None


def _name_of(definition: dict[str, object]) -> str:
    function = definition["function"]
    assert isinstance(function, dict)
    return str(function["name"])


def _repeat(call: ToolCall) -> dict[str, object]:
    """A call as the model's own message."""
    return Completion("", (call,), "tool_calls", None).to_message()
