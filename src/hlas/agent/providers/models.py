"""Language models that the operator has added: where they are, what they cost."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Self

import asyncpg
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from hlas.agent.money import dollars
from hlas.agent.providers import prices
from hlas.errors import KeyNeeded, ModelInUse, ModelNotFound, ModelTaken, PriceUnknown, VaultShut
from hlas.settings import ConfigurationError
from hlas.store.db import Database, Queries, Row
from hlas.store.vault import Vault
from hlas.tenants import revisions
from hlas.tenants.audit import COMMAND_LINE, SERVICE, Change, record
from hlas.tenants.revisions import Expected
from hlas.visitors.origins import Origin

queries = Queries.beside(__file__)

MILLION = 1_000_000
# In nano-dollars for a million tokens: 10 000 dollars.
HIGHEST_PRICE = 10_000 * dollars.NANO
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

_PRICE = re.compile(r"[0-9]{1,5}(\.[0-9]{1,6})?", re.ASCII)
_BASE_URL = re.compile(r"https?://[^/?#@\\\s]+(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?", re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]+")
# What is wrong with a field, by the type of its error.
RULES = {
    "invalid_model_name": "A model's name is 1 to 63 characters: a-z, 0-9 and . _ - after the "
    "first.",
    "invalid_base_url": "Write an address such as https://api.openai.com/v1, without a user, "
    "? and #.",
    "invalid_model_id": "Write the provider's name of the model: 1 to 200 visible characters.",
    "invalid_key": "A key is 1 to 4096 visible ASCII characters on one line.",
    "invalid_price": "Write dollars from 0 to 10000, such as 2.50, with at most 6 decimals.",
    "one_price": "Give the prices of both input and output.",
    "price_and_free": "Give a price or declare the model free, not both.",
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model behind an OpenAI-compatible address; prices in nano-dollars for a million tokens."""

    name: str
    base_url: str
    model: str
    # The provider's key in clear; never logged, stored or shown.
    key: str
    input_price: int
    output_price: int

    @classmethod
    def from_row(cls, row: Row, vault: Vault) -> Self:
        sealed = row["key"]
        return cls(
            name=row["name"],
            base_url=row["base_url"],
            model=row["model"],
            key=vault.open(sealed, purpose_of(row["name"])) if sealed else "",
            input_price=row["input_price"],
            output_price=row["output_price"],
        )

    def __repr__(self) -> str:
        return f"Model({self.name})"

    def price(self, input_tokens: int, output_tokens: int) -> int:
        """The cost in nano-dollars, rounded up."""
        total = input_tokens * self.input_price + output_tokens * self.output_price
        return -(-total // MILLION)


def purpose_of(name: str) -> str:
    """What a model's sealed key is bound to."""
    return f"model {name}"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as it is listed, without its key."""

    name: str
    base_url: str
    model: Annotated[str, Field(description="the provider's name of it")]
    has_key: bool
    input_price: Annotated[str, Field(description="dollars for a million tokens")]
    output_price: Annotated[str, Field(description="dollars for a million tokens")]
    tenants: Annotated[tuple[str, ...], Field(description="the slugs of those that use it")]
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            name=row["name"],
            base_url=row["base_url"],
            model=row["model"],
            has_key=row["has_key"],
            input_price=dollars.show(row["input_price"]),
            output_price=dollars.show(row["output_price"]),
            tenants=tuple(row["tenants"]),
            created_at=row["created_at"],
        )

    @property
    def is_free(self) -> bool:
        return self.input_price == self.output_price == dollars.show(0)

    @property
    def revision(self) -> str:
        return revisions.tag(asdict(self))

    def prices(self) -> tuple[int, int]:
        """Of input and output, in nano-dollars."""
        return dollars.parse(self.input_price), dollars.parse(self.output_price)

    def describe(self) -> dict[str, object]:
        """For the audit: the key is never part of it."""
        content = asdict(self)
        return {name: content[name] for name in content if name not in {"tenants", "created_at"}}


def _refuse(kind: str) -> PydanticCustomError:
    return PydanticCustomError(kind, RULES[kind])


def _check_name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise _refuse("invalid_model_name")
    return text


def _check_base_url(text: str) -> str:
    if len(text) > 500 or not _BASE_URL.fullmatch(text) or Origin.of_url(text) is None:
        raise _refuse("invalid_base_url")
    return text.rstrip("/")


def _check_model_id(text: str) -> str:
    if not 1 <= len(text) <= 200 or not text.isprintable() or any(map(str.isspace, text)):
        raise _refuse("invalid_model_id")
    return text


def _check_key(text: str) -> str:
    if len(text) > 4096 or not _VISIBLE.fullmatch(text):
        raise _refuse("invalid_key")
    return text


def _check_price(text: str) -> str:
    if not _PRICE.fullmatch(text) or dollars.parse(text) > HIGHEST_PRICE:
        raise _refuse("invalid_price")
    return dollars.show(dollars.parse(text))


ModelName = Annotated[str, AfterValidator(_check_name)]
Price = Annotated[str, AfterValidator(_check_price)]
BaseUrl = Annotated[str, AfterValidator(_check_base_url)]
ModelId = Annotated[str, AfterValidator(_check_model_id)]
Key = Annotated[str, AfterValidator(_check_key)]


class Pricing(BaseModel):
    """Both prices, or free, or neither."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_price: Price | None = Field(
        None, description="US dollars for a million tokens, as text: 2.50"
    )
    output_price: Price | None = Field(None, description="likewise")
    is_free: bool = Field(default=False, description="it costs nothing: own hardware")

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        given = [self.input_price is not None, self.output_price is not None]
        if self.is_free and any(given):
            raise _refuse("price_and_free")
        if any(given) and not all(given):
            raise _refuse("one_price")
        return self

    def prices(self) -> tuple[int, int] | None:
        """In nano-dollars; None if they are not given."""
        if self.is_free:
            return 0, 0
        if self.input_price is None or self.output_price is None:
            return None
        return dollars.parse(self.input_price), dollars.parse(self.output_price)


class NewModel(Pricing):
    """Without a price, the provider's list price is looked up."""

    name: ModelName = Field(description="as tenants choose it")
    base_url: BaseUrl = Field(description="https://api.openai.com/v1, http://127.0.0.1:11434/v1")
    model: ModelId = Field(description="the provider's name of the model")
    key: Key | None = Field(
        None, repr=False, description="the provider's key; stored encrypted, never shown again"
    )


class ModelChanges(Pricing):
    """Fields left out keep their values. A new address needs the key again.

    Another address or model without a price gets its list price; without one it is refused.
    """

    base_url: BaseUrl | None = None
    model: ModelId | None = None
    key: Key | None = Field(None, repr=False, description="a new key; null: none is needed")


async def add(
    operators: Database, vault: Vault, new: NewModel, change: Change = COMMAND_LINE
) -> ListedModel:
    """Add a model; its price must be given, known or declared to be none."""
    input_price, output_price = new.prices() or _look_up(new.base_url, new.model)
    sealed = _seal(vault, new.key, new.name)
    async with operators.transaction() as connection:
        status = await connection.execute(
            queries.add_model,
            new.name,
            new.base_url,
            new.model,
            sealed,
            input_price,
            output_price,
        )
        if status == "INSERT 0 0":
            raise ModelTaken(f"{new.name} exists already; `hlas model set` changes it")
        added = await _read(connection, new.name)
        await record(connection, change, SERVICE, "model.add", new.name, after=added.describe())
    return added


async def list_models(operators: Database) -> list[ListedModel]:
    """By name."""
    return [ListedModel.from_row(row) for row in await operators.all(queries.list_models, None)]


async def find_listed(operators: Database, name: str) -> ListedModel:
    return _require(await operators.one(queries.list_models, name), name)


async def find(operators: Database, vault: Vault, name: str) -> Model:
    """The model with its key in clear."""
    row = await operators.one(queries.model_by_name, name)
    if row is None:
        raise _missing(name)
    try:
        return Model.from_row(row, vault)
    except ConfigurationError as error:
        raise VaultShut(str(error)) from None


async def update(
    operators: Database,
    vault: Vault,
    name: str,
    changes: ModelChanges,
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> ListedModel:
    """Running requests keep the price they were reserved at."""
    async with _lock(operators, name) as (connection, before):
        revisions.require(expected, before.revision)
        has_new_key = "key" in changes.model_fields_set
        base_url = changes.base_url or before.base_url
        if base_url != before.base_url and before.has_key and not has_new_key:
            # Otherwise a stored key could be read by sending it to an address of one's own.
            raise KeyNeeded(f"{name}: give its key again, because its address changes")
        model = changes.model or before.model
        # Another model has another price: a free one must not lead to a provider who charges.
        is_same = (base_url, model) == (before.base_url, before.model)
        prices = changes.prices() or (before.prices() if is_same else _look_up(base_url, model))
        await connection.execute(queries.update_model, name, base_url, model, *prices)
        if has_new_key:
            await connection.execute(queries.set_key, name, _seal(vault, changes.key, name))
        after = await _read(connection, name)
        if after != before or has_new_key:
            described = {**after.describe(), "has_new_key": has_new_key}
            await record(
                connection, change, SERVICE, "model.update", name, before.describe(), described
            )
    return after


async def remove(
    operators: Database, name: str, change: Change = COMMAND_LINE, expected: Expected = None
) -> None:
    """Remove a model that no tenant uses."""
    async with _lock(operators, name) as (connection, model):
        revisions.require(expected, model.revision)
        if model.tenants:
            raise ModelInUse(name, model.tenants)
        await connection.execute(queries.remove_model, name)
        await record(connection, change, SERVICE, "model.remove", name, model.describe())


@asynccontextmanager
async def _lock(
    operators: Database, name: str
) -> AsyncIterator[tuple[asyncpg.Connection, ListedModel]]:
    async with operators.transaction() as connection:
        await connection.execute(queries.lock_model, name)
        yield connection, await _read(connection, name)


async def _read(connection: asyncpg.Connection, name: str) -> ListedModel:
    return _require(await connection.fetchrow(queries.list_models, name), name)


def _require(row: Row | None, name: str) -> ListedModel:
    if row is None:
        raise _missing(name)
    return ListedModel.from_row(row)


def _missing(name: str) -> ModelNotFound:
    return ModelNotFound(f"there is no model {name!r}; `hlas model list` shows all")


def _look_up(base_url: str, model: str) -> tuple[int, int]:
    found = prices.find_list_price(base_url, model)
    if found is None:
        raise PriceUnknown(
            f"the price of {model} is not known; give --price IN OUT in dollars for a million "
            "tokens, or --free if it costs nothing"
        )
    return found.input, found.output


def _seal(vault: Vault, key: str | None, name: str) -> bytes | None:
    if key is None:
        return None
    try:
        return vault.seal(key, purpose_of(name))
    except ConfigurationError as error:
        raise VaultShut(str(error)) from None
