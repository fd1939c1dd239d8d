"""Tools that every tenant has: search the knowledge, look up a product, ask for a person."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hlas import log
from hlas.agent.passages import is_relevant, make_passage
from hlas.agent.prompts import Passage
from hlas.agent.ranker import Ranker
from hlas.agent.tools.calls import Caller, Numbers, ToolResult, cut
from hlas.agent.tools.products import Product, find_products
from hlas.conversations import contacts
from hlas.errors import Unavailable
from hlas.knowledge.language import Language
from hlas.payloads import storable
from hlas.store.db import Database
from hlas.tenants.audit import Change, record

LONGEST_QUERY = 300
# A passage is cut to this, and there are so many, so that all of them fit into a result.
LARGEST_PASSAGE = 1500
MOST_PASSAGES = 4

AGENT = Change(actor="agent")
NOTHING_FOUND = "Nothing was found. Try other words once, or say that you do not know."
PERSON_ASKED = (
    "The wish was recorded. Tell the visitor that it was passed on; do not promise when somebody "
    "answers."
)

Query = Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY), AfterValidator(storable)]
OnHandOver = Callable[[Caller, str], Awaitable[None]]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SearchKnowledge(Arguments):
    query: Query = Field(description="What to look for, in the visitor's words")


class GetProduct(Arguments):
    query: Query = Field(description="A product's name or number, or words that describe it")


class HandOver(Arguments):
    reason: str = Field("", max_length=LONGEST_QUERY, description="Why a person is needed")


class Builtin(ABC):
    """A tool of ours. Its tenant is the caller's: no argument can name another."""

    name: ClassVar[str]
    description: ClassVar[str]
    titles: ClassVar[dict[Language, str]]
    arguments: ClassVar[type[Arguments]]

    def define(self) -> dict[str, object]:
        return {
            "name": self.name,
            "description": self.description,
            "parameters": _make_schema(self.arguments),
        }

    def describe(self, language: Language) -> str:
        return self.titles[language]

    async def run(self, arguments: dict[str, object], _seconds: float) -> ToolResult:
        return await self.answer(self.arguments.model_validate(arguments))

    @abstractmethod
    async def answer(self, arguments: Arguments) -> ToolResult: ...


class SearchKnowledgeTool(Builtin):
    name = "search_knowledge"
    description = "Search the questions and answers of this website."
    titles: ClassVar[dict[Language, str]] = {
        "cs": "Hledání v odpovědích",
        "en": "Searching the answers",
    }
    arguments = SearchKnowledge

    def __init__(self, ranker: Ranker, caller: Caller, numbers: Numbers) -> None:
        self._ranker = ranker
        self._caller = caller
        self._numbers = numbers

    async def answer(self, arguments: Arguments) -> ToolResult:
        assert isinstance(arguments, SearchKnowledge)
        caller = self._caller
        try:
            found = await self._ranker.rank(caller.tenant_id, arguments.query, caller.language)
        except Unavailable:
            log.warning("ranking_skipped")
            raise
        best = list(filter(is_relevant, found))[:MOST_PASSAGES]
        passages = [make_passage(self._numbers.give(one.entry_id), one) for one in best]
        return show_passages(
            [replace(one, text=cut(one.text, LARGEST_PASSAGE)) for one in passages]
        )


class GetProductTool(Builtin):
    name = "get_product"
    description = "Look up products or services that this website offers, with their prices."
    titles: ClassVar[dict[Language, str]] = {
        "cs": "Hledání v nabídce",
        "en": "Searching the products",
    }
    arguments = GetProduct

    def __init__(self, ranker: Ranker, caller: Caller, numbers: Numbers) -> None:
        self._ranker = ranker
        self._caller = caller
        self._numbers = numbers

    async def answer(self, arguments: Arguments) -> ToolResult:
        assert isinstance(arguments, GetProduct)
        tenant_id = self._caller.tenant_id
        async with self._ranker.take_turn(tenant_id) as database:
            found = await find_products(database, tenant_id, arguments.query)
        return show_passages([self._make_passage(one) for one in found])

    def _make_passage(self, product: Product) -> Passage:
        passage_id = f"product:{product.sku}"
        number = self._numbers.give(passage_id)
        text = _show_product(product)
        return Passage(number, passage_id, product.name, text, product.url, "product")


class HandOverTool(Builtin):
    """Records the wish. The agent goes on answering until a person takes over."""

    name = "hand_over"
    description = "Ask for a person to join, when the visitor wants one or you cannot help."
    titles: ClassVar[dict[Language, str]] = {
        "cs": "Přivolání člověka",
        "en": "Asking for a person",
    }
    arguments = HandOver

    def __init__(
        self, operators: Database, caller: Caller, on_hand_over: OnHandOver | None
    ) -> None:
        self._operators = operators
        self._caller = caller
        self._on_hand_over = on_hand_over
        self._is_asked = False

    async def answer(self, arguments: Arguments) -> ToolResult:
        assert isinstance(arguments, HandOver)
        if not (self._is_asked or self._caller.is_trial):
            await self._ask(arguments.reason)
            self._is_asked = True
        return ToolResult(PERSON_ASKED, "ok")

    async def _ask(self, reason: str) -> None:
        caller = self._caller
        async with self._operators.transaction() as connection:
            await contacts.want_person(connection, caller.tenant_id, caller.conversation_id)
            # Without the reason: it may quote the visitor, and the audit is kept for long.
            await record(
                connection,
                AGENT,
                UUID(caller.tenant_id),
                "conversation.hand_over",
                caller.conversation_id,
            )
        if self._on_hand_over is not None:
            await self._on_hand_over(caller, reason)


def show_passages(passages: Sequence[Passage]) -> ToolResult:
    if not passages:
        return ToolResult(NOTHING_FOUND, "ok")
    text = "\n\n".join(f"[{one.number}] {one.title}\n{one.text}" for one in passages)
    return ToolResult(text, "ok", tuple(passages))


def _show_product(product: Product) -> str:
    lines = [f"sku: {product.sku}"]
    if product.price:
        lines.append(f"price: {product.price}")
    lines += [f"{name}: {text}" for name, text in product.attributes.items()]
    if product.description:
        lines.append(product.description)
    return cut("\n".join(lines), LARGEST_PASSAGE)


@cache
def _make_schema(arguments: type[Arguments]) -> dict[str, object]:
    """Pydantic repeats the names of classes and fields as titles, which cost tokens."""
    # Making it takes Pydantic half a millisecond, and every answer needs it.
    schema = arguments.model_json_schema()
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    shown = {
        name: {key: value for key, value in one.items() if key != "title"}
        for name, one in properties.items()
    }
    rest = {key: value for key, value in schema.items() if key != "title"}
    return {**rest, "properties": shown}
