"""Models: what one can be, that its key stays secret, and that a used one stays."""

import asyncio
import re
from typing import Any

import asyncpg
import pytest
from pydantic import ValidationError

from administration import wait_for_locks
from hlas.agent import agent_settings
from hlas.agent.money import dollars
from hlas.agent.providers import models, prices
from hlas.agent.providers.models import ModelChanges, NewModel
from hlas.agent.providers.prices import ListPrice
from hlas.errors import (
    KeyNeeded,
    ModelInUse,
    ModelNotFound,
    ModelTaken,
    PreconditionFailed,
    PriceUnknown,
    VaultShut,
)
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants
from hlas.tenants.audit import SERVICE

KEY = "sk-provider-0123456789abcdef"
VAULT = Vault("a key for tests that is long enough")
FREE: dict[str, Any] = {
    "name": "local",
    "base_url": "http://127.0.0.1:11434/v1",
    "model": "llama3",
    "is_free": True,
}
PAID: dict[str, Any] = {
    "name": "gpt",
    "base_url": "https://api.example.com/v1/",
    "model": "gpt-9",
    "key": KEY,
    "input_price": "2.50",
    "output_price": "10",
}


async def add(operators: Database, **values: Any) -> models.ListedModel:
    return await models.add(operators, VAULT, NewModel.model_validate({**FREE, **values}))


async def dump(operators: Database) -> str:
    """All of the models and of the audit, as text."""
    rows = await operators.all("select m::text as text from models m")
    rows += await operators.all("select e::text as text from events e")
    return "\n".join(row["text"] for row in rows)


async def test_life_of_a_model(operators: Database) -> None:
    """Add, list, find, change, remove; each change is one event of the service."""
    added = await models.add(operators, VAULT, NewModel.model_validate(PAID))
    assert (added.base_url, added.input_price, added.output_price) == (
        "https://api.example.com/v1",
        "2.5",
        "10",
    )
    assert await models.list_models(operators) == [added]
    found = await models.find(operators, VAULT, "gpt")
    assert (found.key, found.input_price, found.output_price) == (KEY, 2_500_000_000, 10**10)
    assert found.price(1_000_000, 1) == 2_500_010_000
    assert KEY not in repr(found) + str(found) + repr(NewModel.model_validate(PAID))
    changes = ModelChanges(input_price="0.000001", output_price="0")
    changed = await models.update(operators, VAULT, "gpt", changes)
    assert (changed.input_price, changed.output_price, changed.is_free) == ("0.000001", "0", False)
    assert (await models.find(operators, VAULT, "gpt")).key == KEY
    await models.remove(operators, "gpt")
    assert await models.list_models(operators) == []
    rows = await operators.all("select tenant_id, action, target from events order by id")
    assert [tuple(row) for row in rows] == [
        (SERVICE, f"model.{action}", "gpt") for action in ("add", "update", "remove")
    ]


async def test_a_key_is_in_no_row_and_no_event(operators: Database) -> None:
    """Edge case 41: neither the table nor the audit has any part of the key, old or new."""
    await models.add(operators, VAULT, NewModel.model_validate(PAID))
    new_key = KEY[::-1]
    changed = await models.update(operators, VAULT, "gpt", ModelChanges(key=new_key))
    assert (await models.find(operators, VAULT, "gpt")).key == new_key
    await models.update(operators, VAULT, "gpt", ModelChanges(key=None))
    assert (await models.find(operators, VAULT, "gpt")).key == ""
    text = await dump(operators) + str(changed) + str(await models.list_models(operators))
    for secret in (KEY, new_key):
        for part in (secret, secret[4:16], secret.encode().hex()):
            assert part not in text
    assert text.count("model.update") == 2


async def test_a_key_stays_with_its_model(operators: Database) -> None:
    """A sealed key that is copied to another model's row is not opened there."""
    await models.add(operators, VAULT, NewModel.model_validate(PAID))
    await add(operators, name="other")
    await operators.execute(
        "update models set key = (select key from models where name = 'gpt') where name = 'other'"
    )
    with pytest.raises(VaultShut):
        await models.find(operators, VAULT, "other")


async def test_a_stored_key_is_not_sent_elsewhere(operators: Database) -> None:
    """A new address needs the key again: a stored key cannot be read by redirecting it."""
    await models.add(operators, VAULT, NewModel.model_validate(PAID))
    with pytest.raises(KeyNeeded):
        await models.update(operators, VAULT, "gpt", ModelChanges(base_url="https://evil.example"))
    assert (await models.find(operators, VAULT, "gpt")).base_url == "https://api.example.com/v1"
    for key in (None, "another"):
        changes = ModelChanges(base_url=f"https://new.example/{key}", key=key, is_free=True)
        assert (await models.update(operators, VAULT, "gpt", changes)).has_key == bool(key)


async def test_the_vault_must_open(operators: Database) -> None:
    """Without SECRETS_KEY no key is stored; with another one, none is read. One clear line each."""
    with pytest.raises(VaultShut, match=r"^SECRETS_KEY: it must be set .* openssl rand"):
        await models.add(operators, Vault(""), NewModel.model_validate(PAID))
    assert await models.list_models(operators) == []
    await models.add(operators, Vault(""), NewModel.model_validate(FREE))
    await models.add(operators, VAULT, NewModel.model_validate(PAID))
    with pytest.raises(VaultShut, match=r"^SECRETS_KEY is not the key this secret"):
        await models.find(operators, Vault("some other key that is long enough"), "gpt")


async def test_prices(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, declared to be none, or known; without any of these a model is not added."""
    free = await add(operators)
    assert (free.is_free, free.input_price) == (True, "0")
    unpriced = NewModel.model_validate({**FREE, "name": "unpriced", "is_free": False})
    with pytest.raises(PriceUnknown, match=r"llama3 .* --price IN OUT .* --free"):
        await models.add(operators, VAULT, unpriced)
    found = ListPrice(7, 10**9)
    monkeypatch.setattr(prices, "find_list_price", lambda base_url, model: found)
    known = await models.add(operators, VAULT, unpriced)
    assert (known.input_price, known.output_price) == ("0.000000007", "1")


async def test_another_model_does_not_keep_the_price(
    operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A free model that is pointed at a provider has its price, or is refused; never free."""
    added = await add(operators)
    moves: list[dict[str, Any]] = [{"base_url": "https://api.example.com/v1"}, {"model": "gpt-9"}]
    for move in moves:
        with pytest.raises(PriceUnknown):
            await models.update(operators, VAULT, "local", ModelChanges.model_validate(move))
    assert await models.list_models(operators) == [added]
    asked: list[tuple[str, str]] = []

    def find(base_url: str, model: str) -> ListPrice:
        asked.append((base_url, model))
        return ListPrice(10**9, 2 * 10**9)

    monkeypatch.setattr(prices, "find_list_price", find)
    moved = await models.update(operators, VAULT, "local", ModelChanges.model_validate(moves[0]))
    assert (moved.input_price, moved.output_price) == ("1", "2")
    assert asked == [("https://api.example.com/v1", "llama3")]
    given = ModelChanges(model="gpt-9", input_price="3", output_price="4")
    assert (await models.update(operators, VAULT, "local", given)).input_price == "3"
    free = ModelChanges(model="llama3", is_free=True)
    assert (await models.update(operators, VAULT, "local", free)).is_free
    assert len(asked) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"name": name}, "invalid_model_name") for name in ("", "A", "-a", "a b", "a" * 64, "a\n")),
    *(
        ({"base_url": url}, "invalid_base_url")
        for url in (
            "",
            "api.example.com",
            "ftp://api.example.com",
            "https://",
            "https://user@api.example.com",
            "https://user:pass@api.example.com/v1",
            "https://api.example.com/v1?key=x",
            "https://api.example.com/v1#x",
            "https://api.example.com/v1\n",
            "https://api.example.com\\@evil.example",
            "https://api.example.com:99999",
            "https://127.1/",
            "https://" + "a" * 500 + ".example",
            "javascript:alert(1)",
        )
    ),
    *(({"model": text}, "invalid_model_id") for text in ("", "a b", "a\n", "\0", "x" * 201)),
    *(({"key": text}, "invalid_key") for text in ("", "a b", "a\nb", "klíč", "x" * 4097)),
    *(
        ({"is_free": False, "input_price": text, "output_price": "1"}, "invalid_price")
        for text in ("-1", "1e3", "NaN", "10000.000001", "10001", "0.0000001", "1,5", "٣", "", " 1")
    ),
    ({"is_free": False, "input_price": "1"}, "one_price"),
    ({"input_price": "1", "output_price": "1"}, "price_and_free"),
    ({"is_free": "yes"}, "bool_type"),
    ({"input_price": 1.5, "output_price": "1", "is_free": False}, "string_type"),
    ({"extra": 1}, "extra_forbidden"),
]


@pytest.mark.parametrize(("values", "kind"), WRONG)
def test_what_a_model_cannot_be(values: dict[str, Any], kind: str) -> None:
    """Names, addresses, ids, keys and prices are checked, each with a message of its own."""
    with pytest.raises(ValidationError) as caught:
        NewModel.model_validate({**FREE, **values})
    assert {problem["type"] for problem in caught.value.errors()} == {kind}
    if kind in models.RULES:
        assert caught.value.errors()[0]["msg"] == models.RULES[kind]


@pytest.mark.parametrize("price", ["0", "0.000001", "2.50", "10000", "10000.000000", "9999.999999"])
async def test_prices_are_exact(operators: Database, price: str) -> None:
    """A price of up to six decimals is stored to the nano-dollar, without a float on the way."""
    await add(operators, is_free=False, input_price=price, output_price="0.1")
    row = await operators.one("select input_price, output_price from models")
    assert row is not None
    whole, _, part = price.partition(".")
    assert tuple(row) == (int(whole + part.ljust(9, "0")), 100_000_000)
    assert dollars.parse((await models.list_models(operators))[0].input_price) == row[0]


async def test_names_are_taken_once(operators: Database) -> None:
    """Adding a name twice, and changing or removing an unknown one, changes nothing."""
    added = await add(operators)
    before = await dump(operators)
    with pytest.raises(ModelTaken):
        await add(operators, base_url="https://other.example")
    for attempt in (
        models.find(operators, VAULT, "no-such"),
        models.find_listed(operators, "no-such"),
        models.remove(operators, "no-such"),
        models.update(operators, VAULT, "no-such", ModelChanges(model="x")),
    ):
        with pytest.raises(ModelNotFound, match=r"^there is no model 'no-such'; `hlas model list`"):
            await attempt
    with pytest.raises(PreconditionFailed):
        await models.update(operators, VAULT, "local", ModelChanges(model="x"), frozenset({"0"}))
    changes = ModelChanges(model=added.model, base_url=added.base_url)
    assert await models.update(operators, VAULT, "local", changes) == added
    assert await dump(operators) == before


async def test_a_model_in_use_stays(operators: Database) -> None:
    """It says which tenants use it; once none does, it can be removed."""
    await add(operators)
    shop = await tenants.add(operators, "Shop", "shop", [])
    await agent_settings.update(operators, shop, {"models": ["local"]})
    assert (await models.list_models(operators))[0].tenants == ("shop",)
    with pytest.raises(ModelInUse, match=r"^local is used by shop; "):
        await models.remove(operators, "local")
    await agent_settings.update(operators, shop, {"models": []})
    await models.remove(operators, "local")


async def test_a_model_is_not_removed_while_it_is_chosen(operators: Database) -> None:
    """A tenant chooses a model while it is removed: one of the two is refused, whoever is first."""
    await add(operators)
    shop = await tenants.add(operators, "Shop", "shop", [])
    async with operators.transaction() as connection:
        await connection.execute(agent_settings.queries.make_settings, shop.id)
        await connection.execute(agent_settings.queries.lock_models, ["local"])
        removal = asyncio.create_task(models.remove(operators, "local"))
        await wait_for_locks(operators, 1)
        await connection.execute(agent_settings.queries.set_models, shop.id, ["local"])
    with pytest.raises(ModelInUse):
        await removal
    await agent_settings.update(operators, shop, {"models": []})
    async with operators.transaction() as connection:
        await connection.execute(models.queries.remove_model, "local")
        choice = asyncio.create_task(agent_settings.update(operators, shop, {"models": ["local"]}))
        await wait_for_locks(operators, 1)
    with pytest.raises(ModelNotFound):
        await choice


async def test_models_are_the_operators(operators: Database, database: Database) -> None:
    """Edge case 37: the application's role can read no model at all."""
    await models.add(operators, VAULT, NewModel.model_validate(PAID))
    for column in ("key", "name", "*"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.all(f"select {column} from models")


def test_every_message_is_a_sentence() -> None:
    """What is wrong with a field is said in one line."""
    for sentence in (*models.RULES.values(), *agent_settings.RULES.values()):
        assert re.fullmatch(r"[A-Z][^\n{}]+\.", sentence), sentence
