"""How a tenant's agent answers: what can be set, by whom, and that each change is recorded."""

import asyncio
from typing import Any

import asyncpg
import pytest
from pydantic import ValidationError

from administration import add_model, lock_rows, wait_for_locks
from hlas.agent import agent_settings
from hlas.agent.agent_settings import DEFAULTS, AgentChanges
from hlas.errors import ModelNotFound, PreconditionFailed, TenantNotFound
from hlas.store.db import Confined, Database
from hlas.store.logins import TENANT_ADMIN, Logins
from hlas.store.vault import Vault
from hlas.tenants import tenants
from hlas.tenants.audit import Change
from hlas.tenants.tenants import Tenant

VAULT = Vault("a key for tests that is long enough")


async def make_shop(operators: Database, slug: str = "shop") -> Tenant:
    return await tenants.add(operators, slug, slug, [f"{slug}.example", f"*.{slug}.example"])


async def add_models(operators: Database, *names: str) -> None:
    for name in names:
        await add_model(operators, name)


async def test_without_a_row_the_defaults_apply(operators: Database) -> None:
    """A tenant without a row reads the defaults of the schema, which its first row has, too."""
    shop = await make_shop(operators)
    assert await agent_settings.read(operators, shop.id) == DEFAULTS
    await operators.execute(agent_settings.queries.make_settings, shop.id)
    assert await agent_settings.read(operators, shop.id) == DEFAULTS
    assert await agent_settings.assign(operators, VAULT, str(shop.id), str(shop.id)) is None


async def test_changes_are_stored_and_recorded(operators: Database) -> None:
    """Only what changes is set, with one event that has before and after."""
    shop = await make_shop(operators)
    await add_models(operators, "b", "a")
    values = {
        "models": ["b", "a"],
        "instructions": "Buďte struční.",
        "tools": ["search_knowledge", "crm__*"],
        "acting_tools": ["crm__book"],
        "link_hosts": ["Maps.Example", "*.partner.example"],
        "max_steps": 2,
        "is_debug": True,
    }
    changes = AgentChanges.model_validate(values).list_changes()
    changed = await agent_settings.update(operators, shop, changes, None, Change("Ada"))
    assert changed == await agent_settings.read(operators, shop.id)
    assert changed.models == ("b", "a")
    assert changed.link_hosts == ("maps.example", "*.partner.example")
    assert (changed.max_steps, changed.is_debug) == (2, True)
    await agent_settings.update(operators, shop, {"is_debug": False, "max_steps": 2})
    rows = await operators.all(
        "select actor, action, target, before, after from events "
        "where action = 'agent.update' order by id"
    )
    assert [tuple(row)[:3] for row in rows] == [
        ("Ada", "agent.update", "shop"),
        ("command line", "agent.update", "shop"),
    ]
    assert rows[0]["after"] == changes
    assert rows[0]["before"]["tools"] == list(DEFAULTS.tools)
    assert (rows[1]["before"], rows[1]["after"]) == ({"is_debug": True}, {"is_debug": False})


async def test_the_agent_gets_its_models_in_order(operators: Database) -> None:
    """The assignment has the models in the order in which they were chosen."""
    shop = await make_shop(operators)
    await add_models(operators, "a", "b", "c")
    await agent_settings.update(operators, shop, {"models": ["c", "a"]})
    found = await agent_settings.assign(operators, VAULT, str(shop.id), str(shop.id))
    assert found is not None
    assert [model.name for model in found.models] == ["c", "a"]
    assert found.domains == ("*.shop.example", "shop.example")


async def test_a_change_without_effect_adds_nothing(operators: Database) -> None:
    """Neither a row nor an event, and the revision stays."""
    shop = await make_shop(operators)
    same = AgentChanges(tools=list(DEFAULTS.tools), max_steps=None, models=[]).list_changes()
    expected = frozenset({DEFAULTS.revision})
    assert await agent_settings.update(operators, shop, same, expected) == DEFAULTS
    assert await operators.all("select 1 from agent_settings") == []
    assert await operators.all("select 1 from events where action = 'agent.update'") == []


async def test_nobody_overwrites_what_they_have_not_seen(operators: Database) -> None:
    """Of concurrent changes to the same state one is made, also to a tenant without a row."""
    shop = await make_shop(operators)
    expected = frozenset({DEFAULTS.revision})
    async with lock_rows(operators, "select from tenants for update"):
        asked = [
            asyncio.create_task(
                agent_settings.update(operators, shop, {"max_steps": number}, expected)
            )
            for number in (1, 2, 3)
        ]
        await wait_for_locks(operators, len(asked))
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(isinstance(one, PreconditionFailed) for one in done) == [False, True, True]


async def test_unknown_models_and_tenants(operators: Database) -> None:
    """Models must exist, the tenant must still exist; nothing is half done."""
    shop = await make_shop(operators)
    await add_models(operators, "a")
    with pytest.raises(ModelNotFound, match="'no-such'"):
        await agent_settings.update(
            operators, shop, {"instructions": "x", "models": ["a", "no-such"]}
        )
    assert await agent_settings.read(operators, shop.id) == DEFAULTS
    await tenants.remove(operators, "shop")
    with pytest.raises(TenantNotFound):
        await agent_settings.update(operators, shop, {"max_steps": 1})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"models": ["a"] * 2}, "twice"),
    ({"models": [f"m{number}" for number in range(6)]}, "too_long"),
    ({"models": ["A\0"]}, "invalid_model_name"),
    ({"models": "a"}, "list_type"),
    ({"instructions": "x" * 8001}, "string_too_long"),
    ({"instructions": "a\0b"}, "invalid_character"),
    *(
        ({field: [name]}, "invalid_tool")
        for field in ("tools", "acting_tools")
        for name in (
            "",
            "no_such",
            "*",
            "server__",
            "SERVER__x",
            "server__a b",
            "s__\0",
            "get_product\n",
        )
    ),
    ({"tools": ["hand_over", "hand_over"]}, "twice"),
    ({"tools": [f"server__t{number}" for number in range(41)]}, "too_long"),
    *(
        ({"link_hosts": [host]}, "invalid_host")
        for host in (
            *("", "*", "*.com", "https://a.example", "a.example:80", "a.example/x", "127.1"),
            *("a b.example", "a.example#", "user@a.example", "\0", "[::1]", "-a.example"),
        )
    ),
    ({"max_steps": 0}, "greater_than_equal"),
    ({"max_steps": 6}, "less_than_equal"),
    ({"max_steps": "2"}, "int_type"),
    ({"is_debug": "yes"}, "bool_type"),
    ({"canary": "x"}, "extra_forbidden"),
]


@pytest.mark.parametrize(("values", "kind"), WRONG)
def test_what_cannot_be_set(values: dict[str, Any], kind: str) -> None:
    """Lists, texts, tools, hosts and numbers are checked."""
    with pytest.raises(ValidationError) as caught:
        AgentChanges.model_validate(values)
    assert {problem["type"] for problem in caught.value.errors()} == {kind}


async def test_the_database_holds_a_tenants_administrator(
    operators: Database, database_url: str
) -> None:
    """Edge case 37: the role itself can set neither models nor the debug flag, reads no canary and
    no model, and reaches no other tenant's settings.
    """
    shop, other = await make_shop(operators), await make_shop(operators, "other")
    await add_models(operators, "a")
    await agent_settings.update(operators, other, {"models": ["a"], "instructions": "theirs"})
    admins = await Database.open(Logins(database_url), TENANT_ADMIN)
    confined = Confined(admins, str(shop.id))
    own = {
        "instructions": "ours",
        "tools": [],
        "acting_tools": ["hand_over"],
        "link_hosts": ["a.example"],
        "max_steps": 1,
    }
    changed = await agent_settings.update(confined, shop, own)
    assert (changed.instructions, changed.models) == ("ours", ())
    assert await agent_settings.read(confined, other.id) == DEFAULTS
    for statement in (
        "update agent_settings set models = '{a}'",
        "update agent_settings set is_debug = true",
        "update agent_settings set canary = ''",
        "insert into agent_settings (tenant_id, models) values (gen_random_uuid(), '{a}')",
        "delete from agent_settings",
        "select canary from agent_settings",
        "select * from models",
        "update models set input_price = 0",
        "update budgets set cap_day = null",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await confined.execute(statement)
    for changes in ({"models": ["a"]}, {"is_debug": True}):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await agent_settings.update(confined, shop, changes)
    with pytest.raises(TenantNotFound):
        await agent_settings.update(confined, other, {"instructions": "taken over"})
    assert await confined.execute("update agent_settings set instructions = 'x'") == "UPDATE 1"
    assert (await agent_settings.read(operators, other.id)).instructions == "theirs"
    await admins.close()


def test_tools_are_stored_as_the_model_knows_them() -> None:
    """A tool that its server names with dots is one name everywhere, and is named once."""
    changes = AgentChanges(tools=["crm__*", "crm__delete.order", "hand_over"])
    assert changes.tools == ["crm__*", "crm__delete_order", "hand_over"]
    with pytest.raises(ValidationError) as caught:
        AgentChanges(acting_tools=["crm__delete.order", "crm__delete_order"])
    assert [problem["type"] for problem in caught.value.errors()] == ["twice"]
