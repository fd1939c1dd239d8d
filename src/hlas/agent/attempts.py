"""One attempt at an answer with a language model: model, tools, model, answer."""

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import orjson
import uuid_utils

from hlas import log
from hlas.agent import (
    Answer,
    Confirmation,
    Listener,
    Question,
    Reason,
    Source,
    Usage,
    chat,
    prompts,
)
from hlas.agent.agent_settings import Assignment
from hlas.agent.chat import ChatClient, Completion, ModelError, ToolCall
from hlas.agent.guard import CanaryTripped, Guard
from hlas.agent.models import Model
from hlas.agent.prompts import Passage, Turn
from hlas.agent.spend import BudgetUsedUp, Ledger, Payer
from hlas.agent.tools import Caller, Toolbox, ToolResult, Tools
from hlas.conversations import frames
from hlas.errors import Unavailable
from hlas.knowledge import entries
from hlas.knowledge.language import Language
from hlas.settings import Settings
from hlas.store.db import Database, Queries

queries = Queries.beside(__file__)

# A passage below this confidence would only mislead.
PASSAGE_CONFIDENCE = 0.2
MOST_CALLS = 8
TOOL_SECONDS = 10.0
# These find only what the passages already have, or give up: alone they are no reason to ask.
UNHELPFUL: Final = frozenset({"search_knowledge", "hand_over"})

CONSENT: Final[dict[Language, str]] = {
    "cs": "Mám to udělat?",
    "en": "Shall I do this?",
}

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
    # The connections on which knowledge is searched.
    agents: Database
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
        self._listener = listener
        self._models = list(assignment.models)
        self._most_steps = min(
            options.max_steps or settings.agent_max_steps,
            assignment.settings.max_steps or settings.agent_max_steps,
        )
        limit = settings.agent_timeout_seconds
        self.seconds = min(options.timeout_ms / 1000, limit) if options.timeout_ms else limit
        self._deadline = time.monotonic() + self.seconds
        self._usage = Usage()
        self._steps = 0
        self._used: list[str] = []
        self._said = ""
        self._blanks = ""
        self._confidence = 0.0
        self.trace: list[dict[str, object]] = []
        self.messages: list[dict[str, object]] = []
        self.passages: list[Passage] = []

    async def run(self) -> Answer:
        question, settings = self._question, self._assignment.settings
        caller = Caller(
            question.tenant_id, question.conversation_id, question.run_id, question.language
        )
        self.passages = await self._find_passages()
        tools = await self._means.toolbox.open(caller, settings, self.passages)
        self._names = {_name_of(definition) for definition in tools.definitions()}
        is_decision = question.confirmed or question.declined
        if not self.passages and self._names <= UNHELPFUL and not is_decision:
            raise GiveUp(None)
        assignment = self._assignment
        hosts = (*assignment.domains, *settings.link_hosts)
        self._guard = Guard(hosts, assignment.canary, self.passages)
        self.messages = prompts.build(
            assignment,
            question.language,
            await self._read_history(),
            self.passages,
            nonce=secrets.token_hex(8),
        )
        if is_decision:
            await self._carry_out(tools)
        return await self._loop(tools)

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
        question, found = self._question, dict[str, entries.Match]()
        try:
            for text in (*question.earlier, question.text)[-3:]:
                matches = await entries.rank(
                    self._means.agents, question.tenant_id, text, question.language
                )
                for match in matches:
                    self._confidence = max(self._confidence, match.confidence)
                    if match.confidence >= PASSAGE_CONFIDENCE:
                        found.setdefault(match.entry_id, match)
        except Unavailable:
            log.warning("ranking_skipped")
        return [
            Passage(number, match.entry_id, match.question, match.answer, "")
            for number, match in enumerate(found.values(), start=1)
        ]

    async def _read_history(self) -> list[Turn]:
        """The conversation up to the question, without the numbers of earlier citations."""
        question = self._question
        wanted = question.options.max_history_messages
        most = self._means.settings.agent_max_history_messages if wanted is None else wanted
        # The messages that have no answer yet are always among them.
        most = max(most, len(question.earlier)) + 1
        rows = await self._means.agents.all(
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
                is_safe = not error.may_be_paid and not self._said
                if not is_safe or len(self._models) == 1:
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
        self._is_first_piece = True
        tokens: chat.Tokens | None = None
        is_free = False
        try:
            completion = await means.client.complete(
                model, body, self._hear, seconds=self._deadline - time.monotonic()
            )
            tokens = completion.tokens
        except ModelError as error:
            is_free, tokens = not error.may_be_paid, error.tokens
            raise
        except CanaryTripped:
            self._trip()
        finally:
            # Also when the visitor has stopped the answer: the books are kept to the end.
            settling = (
                means.ledger.release(reservation)
                if is_free
                else means.ledger.settle(reservation, model, tokens)
            )
            usage = await asyncio.shield(asyncio.ensure_future(settling))
            self._usage += usage or Usage()
            self._note("model", started, name=model.name, tokens=tokens)
        return completion

    def _hear(self, piece: str) -> None:
        if self._said and self._is_first_piece and piece:
            self._release("\n\n")
        if piece:
            self._is_first_piece = False
            self._release(piece)

    def _release(self, piece: str) -> None:
        self._say(self._guard.feed(piece))

    def _say(self, text: str) -> None:
        """Show more of the answer; blanks wait until something follows them."""
        text = self._blanks + text if self._said else text.lstrip()
        shown = text.rstrip()
        self._blanks = text[len(shown) :]
        if shown:
            self._said += shown
            self._listener.say(shown)

    async def _call(self, tools: Tools, completion: Completion) -> Confirmation | None:
        """Call the tools; a call that needs the visitor's consent ends the answer instead."""
        calls = completion.calls[:MOST_CALLS]
        for call in calls:
            if tools.is_acting(call.name) and (arguments := _parse(call.arguments)) is not None:
                return await self._offer(tools, call, arguments)
        self.messages.append(replace(completion, calls=calls).to_message())
        results = await asyncio.gather(*(self._use(tools, call) for call in calls))
        for call, result in zip(calls, results, strict=True):
            self._take_result(call, result)
        return None

    async def _use(self, tools: Tools, call: ToolCall, *, has_consent: bool = False) -> ToolResult:
        started = time.perf_counter()
        is_known = call.name in self._names
        name = call.name if is_known else "unknown"
        self._listener.show(
            frames.encode("tool-input-available", toolCallId=call.id, toolName=name, input={})
        )
        if tools.is_acting(call.name) and not has_consent:
            result = ToolResult("The arguments are not a JSON object.", "invalid")
        else:
            left = self._deadline - time.monotonic()
            result = await tools.call(call.name, call.arguments, seconds=min(TOOL_SECONDS, left))
        self._listener.show(frames.encode("tool-output-available", toolCallId=call.id, output={}))
        if is_known:
            self._used.append(name)
        self._note("tool", started, name=name, outcome=result.outcome)
        return result

    def _take_result(self, call: ToolCall, result: ToolResult) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
        known = {passage.number for passage in self.passages}
        self.passages += [one for one in result.passages if one.number not in known]
        self._guard.add(result.passages)

    async def _offer(
        self, tools: Tools, call: ToolCall, arguments: dict[str, object]
    ) -> Confirmation:
        """Ask the visitor before an acting tool is called."""
        question = self._question
        confirmation = Confirmation(str(uuid_utils.uuid7()), tools.describe(call.name), arguments)
        if not question.reply_to:
            # A trial: there is no visitor to ask.
            return confirmation
        await self._means.operators.execute(
            queries.add_confirmation,
            question.tenant_id,
            confirmation.id,
            question.conversation_id,
            call.name,
            arguments,
        )
        return confirmation

    async def _carry_out(self, tools: Tools) -> None:
        """Do what the visitor has confirmed, once; or tell the model that it was declined."""
        question = self._question
        state = "confirmed" if question.confirmed else "declined"
        row = await self._means.operators.one(
            queries.decide_confirmation,
            question.tenant_id,
            question.confirmed or question.declined,
            question.conversation_id,
            state,
        )
        if row is None:
            # Decided before, perhaps by an attempt whose worker is gone.
            text = "This decision was taken before; do not repeat the action."
            call = ToolCall("decision", "decision", "{}")
            self.messages.append(_repeat(call))
            self._take_result(call, ToolResult(text, "error"))
            return
        call = ToolCall("decision", row["tool"], orjson.dumps(row["arguments"]).decode())
        self.messages.append(_repeat(call))
        if question.declined:
            self._take_result(call, ToolResult("The visitor declined.", "error"))
        else:
            self._take_result(call, await self._use(tools, call, has_consent=True))

    def _ask_consent(self, confirmation: Confirmation) -> Answer:
        self._end_text()
        if not self._said:
            self._say(CONSENT[self._question.language])
        return replace(self._make_answer(), confirmation=confirmation)

    def _finish(self, completion: Completion) -> Answer:
        self._end_text()
        if not self._said.strip():
            raise GiveUp("model_failed")
        if completion.finish == "length":
            self._say(" …")
        for source in self._list_sources():
            if source.url:
                shown = frames.encode(
                    "source-url", sourceId=str(source.number), url=source.url, title=source.title
                )
                self._listener.show(shown)
        return self._make_answer()

    def _end_text(self) -> None:
        try:
            self._say(self._guard.finish())
        except CanaryTripped:
            self._trip()

    def _trip(self) -> NoReturn:
        """The model gives away its prompt: nothing of this answer is to be believed."""
        log.error("canary_tripped", model=self._models[0].name)
        raise GiveUp("model_failed") from None

    def _list_sources(self) -> tuple[Source, ...]:
        cited = sorted(self._guard.cited, key=lambda one: one.number)
        return tuple(Source(one.number, one.title, one.url) for one in cited)

    def _make_answer(self) -> Answer:
        cited = (one.entry_id for one in self._guard.cited if one.entry_id)
        answer = Answer(
            self._said,
            "agent",
            self._confidence,
            entries=tuple(dict.fromkeys(cited)),
            sources=self._list_sources(),
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

    def _note(
        self,
        kind: str,
        started: float,
        *,
        name: str,
        outcome: str | None = None,
        tokens: chat.Tokens | None = None,
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
    """None: not a JSON object."""
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _name_of(definition: dict[str, object]) -> str:
    function = definition["function"]
    assert isinstance(function, dict)
    return str(function["name"])


def _repeat(call: ToolCall) -> dict[str, object]:
    """A call as the model's own message."""
    return Completion("", (call,), "tool_calls", None).to_message()
