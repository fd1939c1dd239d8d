"""The agent with a language model, within limits of steps, time and money.

Whatever goes wrong with the model, the knowledge answers: a visitor never sees an error.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import uuid_utils

from hlas import log
from hlas.agent import Agent, Answer, Listener, Question, Reason, agent_settings
from hlas.agent.attempts import Attempt, GiveUp, Means
from hlas.agent.embedder import EndpointEmbedder
from hlas.agent.knowledge import KnowledgeAgent, tell
from hlas.agent.money.spend import Ledger
from hlas.agent.prompts import Passage
from hlas.agent.providers.chat import ChatClient
from hlas.agent.ranker import CONNECTIONS, STATEMENT_SECONDS, Ranker
from hlas.agent.tools.toolbox import Toolbox
from hlas.errors import Unavailable
from hlas.knowledge.embedding.client import CONNECTIONS as SEMANTIC_CONNECTIONS
from hlas.knowledge.embedding.client import EmbeddingClient
from hlas.knowledge.embedding.embedders import Embedder, ProcessEmbedder
from hlas.knowledge.embedding.installation import Meter as EmbeddingMeter
from hlas.knowledge.embedding.installation import is_usable
from hlas.knowledge.embedding.runtime import find_socket
from hlas.knowledge.language import Language
from hlas.outbound.client import OutboundClient
from hlas.settings import ConfigurationError, Settings
from hlas.store.db import Database
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.store.vault import Vault

# For settings, money and confirmations.
MONEY_CONNECTIONS = 2
MONEY_STATEMENT_SECONDS = 3.0


class Meter(EmbeddingMeter, Protocol):
    """Counts what models and tools do."""

    def model_usage(self, input_tokens: int, output_tokens: int, cost: int) -> None: ...

    def tool_call(self, outcome: str) -> None: ...

    def incident(self, kind: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """An answer that is not stored, with everything that led to it."""

    answer: Answer
    messages: tuple[dict[str, object], ...]
    passages: tuple[Passage, ...]
    steps: tuple[dict[str, object], ...]
    seconds: float


class ModelAgent:
    """Answers with the tenant's model if there is one, within limits of steps, time and money."""

    def __init__(
        self,
        knowledge: Agent,
        means: Means,
        vault: Vault,
        semantic: EmbeddingClient | None = None,
    ) -> None:
        self.knowledge = knowledge
        # None: answers are found by their words alone.
        self.semantic = semantic
        self.means = means
        self.vault = vault

    async def answer(self, question: Question, listener: Listener) -> Answer:
        if not question.has_model:
            return await self.knowledge.answer(question, listener)
        answer, _ = await self._try(question, listener)
        return answer

    async def try_out(
        self, tenant_id: str, text: str, language: Language, context: tuple[str, ...] = ()
    ) -> Trial:
        """Answer a question outside of any conversation; it costs what an answer costs."""
        nobody = str(uuid_utils.uuid7())
        question = Question(
            tenant_id, nobody, text, language, run_id=nobody, has_model=True, context=context
        )
        started = time.perf_counter()
        answer, attempt = await self._try(question, _Silence())
        seconds = time.perf_counter() - started
        if attempt is None:
            return Trial(answer, (), (), (), seconds)
        return Trial(
            answer,
            tuple(attempt.show_messages()),
            tuple(attempt.passages),
            tuple(attempt.trace),
            seconds,
        )

    async def _try(self, question: Question, listener: Listener) -> tuple[Answer, Attempt | None]:
        try:
            assignment = await agent_settings.assign(
                self.means.operators, self.vault, question.tenant_id, question.run_id
            )
        except (ConfigurationError, Unavailable) as error:
            if isinstance(error, ConfigurationError):
                log.error("model_key_unreadable")
            answer = await self.knowledge.answer(question, listener)
            return replace(answer, reason="model_failed"), None
        if assignment is None:
            return await self.knowledge.answer(question, listener), None
        attempt = Attempt(self.means, question, assignment, listener)
        # A second attempt never pays again.
        reason: Reason | None = "model_failed"
        if not assignment.is_paid:
            try:
                return await self._run(attempt, listener), attempt
            except GiveUp as gone:
                reason = gone.reason
        answer = await self._answer_instead(attempt, question, listener)
        return attempt.complete(answer, reason), attempt

    async def _run(self, attempt: Attempt, listener: Listener) -> Answer:
        """The model's answer; raise GiveUp if there is none, whatever the reason."""
        try:
            async with asyncio.timeout(attempt.seconds):
                return await attempt.run()
        except asyncio.CancelledError:
            listener.leave(attempt.make_answer())
            raise
        except GiveUp:
            listener.withdraw()
            raise
        except TimeoutError:
            listener.withdraw()
            raise GiveUp("model_timeout") from None
        except Exception as error:  # noqa: BLE001  # a visitor never sees an error of a model
            log.error("agent_failed", error=type(error).__name__, where=log.find_place(error))
            listener.withdraw()
            raise GiveUp("model_failed") from None

    async def _answer_instead(
        self, attempt: Attempt, question: Question, listener: Listener
    ) -> Answer:
        """What was confirmed may have been done: the knowledge knows nothing about that."""
        try:
            report = await attempt.report_decision()
        except Unavailable:
            report = None
        if report is not None:
            return report
        if attempt.findings:
            # Searched already: a search takes time, and may cost money.
            return tell(attempt.findings, question.language, listener)
        return await self.knowledge.answer(question, listener)


class _Silence:
    """Nobody listens."""

    def say(self, piece: str) -> None:
        pass

    def show(self, frame: str) -> None:
        pass

    def withdraw(self) -> None:
        pass

    def leave(self, answer: Answer) -> None:
        pass


@asynccontextmanager
async def open_agent(logins: Logins, settings: Settings, meter: Meter) -> AsyncIterator[ModelAgent]:
    """An agent with connections of its own: answers that wait for money delay no lease."""
    vault = Vault.from_settings(settings)
    async with AsyncExitStack() as stack:
        agents = await Database.open(
            logins,
            APPLICATION,
            size=CONNECTIONS + (SEMANTIC_CONNECTIONS if is_usable(settings) else 0),
            statement_seconds=STATEMENT_SECONDS,
        )
        stack.push_async_callback(agents.close)
        operators = await Database.open(
            logins, OPERATOR, size=MONEY_CONNECTIONS, statement_seconds=MONEY_STATEMENT_SECONDS
        )
        stack.push_async_callback(operators.close)
        client = ChatClient()
        stack.push_async_callback(client.close)
        outbound = OutboundClient.from_settings(settings)
        stack.push_async_callback(outbound.close)
        ledger = Ledger(operators, meter)
        semantic = None
        if is_usable(settings):
            socket = find_socket(settings.data_dir)
            embedder: Embedder = ProcessEmbedder(socket)
            if settings.embedding_model:
                name = settings.embedding_model
                embedder = EndpointEmbedder(operators, vault, client, ledger, name)
            semantic = EmbeddingClient(agents, socket, embedder, meter)
            stack.push_async_callback(semantic.close)
        ranker = Ranker(agents, semantic)
        toolbox = Toolbox(ranker, operators, vault, outbound, meter)
        stack.push_async_callback(toolbox.close)
        means = Means(client, ledger, toolbox, ranker, operators, settings)
        yield ModelAgent(KnowledgeAgent(ranker), means, vault, semantic)
