"""The agent that answers visitors: a protocol from a question to an answer."""

from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from hlas.agent.options import Options
from hlas.knowledge.language import Language

NANO: Final = 1_000_000_000

# Who wrote an answer.
AnswerSource: TypeAlias = Literal["agent", "knowledge", "smalltalk", "fallback"]
# Why the model did not write it although there is one.
Reason: TypeAlias = Literal["model_failed", "model_timeout", "budget", "steps"]


@dataclass(frozen=True, slots=True)
class Question:
    """A visitor's last message, and the language to answer in."""

    tenant_id: str
    conversation_id: str
    text: str
    language: Language
    # Messages before it that have no answer either, oldest first.
    earlier: tuple[str, ...] = ()
    # 1, or more when a worker left the run behind, which may have paid for a model.
    attempt: int = 1
    # The run that answers it, and the seq of the visitor's last message.
    run_id: str = ""
    reply_to: int = 0
    # The tenant has a language model.
    has_model: bool = False
    options: Options = field(default_factory=Options)
    # The acting tool's call that this message confirms or declines.
    confirmed: str | None = None
    declined: str | None = None
    # What the visitor asked before, oldest first: this may be a follow-up.
    context: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that the answer cites as [number]; `url` is empty where it has no address."""

    number: int
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more model requests, and their cost in nano-dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )

    def describe(self) -> dict[str, object]:
        """As clients see it."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost / NANO,
        }


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A call of an acting tool that waits for the visitor's consent."""

    id: str
    tool: str
    # Shown to the visitor, who decides about exactly these.
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and its source; without text the tenant's fallback sentence is sent."""

    text: str | None
    source: AnswerSource
    confidence: float
    # That it was taken from; with suggestions, those that are offered.
    entries: tuple[str, ...] = ()
    # Questions that the visitor may have meant, if the answer is not sure.
    suggestions: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    reason: Reason | None = None
    steps: int = 0
    tools_used: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    confirmation: Confirmation | None = None
    # What happened step by step, where the tenant allows it and the client asked for it.
    trace: tuple[dict[str, object], ...] = ()


class Listener(Protocol):
    """Shows an answer to the visitor while it is being made."""

    def say(self, piece: str) -> None:
        """A piece of the text."""

    def show(self, frame: str) -> None:
        """A frame other than text (`conversations.frames`), as that of a tool."""

    def withdraw(self) -> None:
        """What was said is void; another answer follows."""

    def leave(self, answer: "Answer") -> None:
        """The answer so far, from an agent that was told to stop."""


class Agent(Protocol):
    """May be slow: the caller holds no connection and no lock while it waits."""

    async def answer(self, question: Question, listener: Listener) -> Answer:
        """What `listener` is given is the beginning of the answer's text, or is withdrawn."""
