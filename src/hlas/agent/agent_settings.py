"""How a tenant's agent answers: models, instructions, tools, hosts that answers may link to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Self
from uuid import UUID

import asyncpg
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from hlas.agent.providers.models import Model, ModelName
from hlas.agent.tools.tool_names import normalize
from hlas.errors import ModelNotFound, TenantNotFound
from hlas.payloads import storable
from hlas.store.db import Database, Queries, Row
from hlas.store.vault import Vault
from hlas.tenants import revisions
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.tenants.revisions import Expected
from hlas.tenants.tenants import Tenant
from hlas.visitors.origins import AllowedDomain

queries = Queries.beside(__file__)

LONGEST_INSTRUCTIONS = 8000
MOST_MODELS = 5
MOST_STEPS = 5
MOST_TOOLS = 40
MOST_HOSTS = 100
# What each built-in tool does, for those who choose them.
BUILT_IN = {
    "search_knowledge": "Look up questions and answers",
    "get_product": "Find products and their prices",
    "hand_over": "Ask a person to take over",
}

_SERVERS_TOOL = re.compile(r"[a-z][a-z0-9_]{0,30}__(\*|[A-Za-z0-9_.-]{1,64})", re.ASCII)
# What is wrong with a field, by the type of its error.
RULES = {
    "invalid_tool": f"A tool is {', '.join(BUILT_IN)}, or one of an MCP server: server__tool, or "
    "server__* for all.",
    "invalid_host": "Write a host such as example.com or *.example.com, without https:// and port.",
    "twice": "Name each of them once.",
}


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """A tenant's settings. `models` are names, in the order in which they are tried."""

    models: tuple[str, ...]
    instructions: str
    # Names of built-in tools, `server__tool`, or `server__*` for all of an MCP server's.
    tools: tuple[str, ...]
    # Those of them that the visitor has to confirm.
    acting_tools: tuple[str, ...]
    # Hosts that answers may link to, besides the tenant's domains and those of its knowledge.
    link_hosts: tuple[str, ...]
    max_steps: int | None
    is_debug: bool

    @property
    def revision(self) -> str:
        return revisions.tag(asdict(self))

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            models=tuple(row["models"]),
            instructions=row["instructions"],
            tools=tuple(row["tools"]),
            acting_tools=tuple(row["acting_tools"]),
            link_hosts=tuple(row["link_hosts"]),
            max_steps=row["max_steps"],
            is_debug=row["is_debug"],
        )


# Those of a tenant without a row, which are the defaults of the schema.
DEFAULTS = AgentSettings((), "", tuple(BUILT_IN), (), (), None, is_debug=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that one run of a tenant's agent needs to know."""

    settings: AgentSettings
    models: tuple[Model, ...]
    # A secret of the prompt: an answer that contains it is not sent.
    canary: str
    tenant_name: str
    # The hosts of the tenant's domains; `*.` stands for all below.
    domains: tuple[str, ...]
    # An earlier attempt at the run has reserved money, so it may have paid.
    is_paid: bool


async def assign(
    operators: Database, vault: Vault, tenant_id: str, run_id: str
) -> Assignment | None:
    """None: the tenant has no model."""
    rows = await operators.all(queries.assignment, tenant_id, run_id)
    if not rows:
        return None
    first = rows[0]
    settings = AgentSettings.from_row(first)
    if not first["has_products"]:
        # A tool that finds nothing would be a reason to pay for a model that knows nothing.
        tools = tuple(name for name in settings.tools if name != "get_product")
        settings = replace(settings, tools=tools)
    return Assignment(
        settings=settings,
        models=tuple(Model.from_row(row, vault) for row in rows),
        canary=first["canary"],
        tenant_name=first["tenant_name"],
        domains=tuple(first["domains"]),
        is_paid=first["is_paid"],
    )


def _check_tool(text: str) -> str:
    """The name as the model knows it."""
    if text not in BUILT_IN and not _SERVERS_TOOL.fullmatch(text):
        raise PydanticCustomError("invalid_tool", RULES["invalid_tool"])
    return normalize(text)


def _check_host(text: str) -> str:
    """The host as `Assignment.domains` has it."""
    try:
        # Neither a scheme nor a port: they would promise more than the guard checks.
        parsed = AllowedDomain.parse("" if ":" in text or "/" in text else text)
    except ValueError:
        raise PydanticCustomError("invalid_host", RULES["invalid_host"]) from None
    return f"*.{parsed.host}" if parsed.is_wildcard else parsed.host


def _check_unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("twice", RULES["twice"])
    return names


Instructions = Annotated[str, Field(max_length=LONGEST_INSTRUCTIONS), AfterValidator(storable)]
Unique = AfterValidator(_check_unique)
Tools = Annotated[
    list[Annotated[str, Field(max_length=100), AfterValidator(_check_tool)]],
    Field(max_length=MOST_TOOLS),
    Unique,
]
Hosts = Annotated[
    list[Annotated[str, Field(max_length=300), AfterValidator(_check_host)]],
    Field(max_length=MOST_HOSTS),
    Unique,
]


class AgentChanges(BaseModel):
    """Fields left out keep their values; lists are replaced as a whole."""

    model_config = ConfigDict(extra="forbid", strict=True)

    models: Annotated[list[ModelName], Field(max_length=MOST_MODELS), Unique] = Field(
        default_factory=list,
        description="operators only: names of models in the order in which they are tried; none: "
        "answers come from the knowledge",
    )
    instructions: Instructions = Field("", description="what the model is told besides our rules")
    tools: Tools = Field(
        default_factory=list,
        description=f"{', '.join(BUILT_IN)}; server__tool, or server__* for all of an MCP server",
    )
    acting_tools: Tools = Field(
        default_factory=list, description="those that the visitor has to confirm"
    )
    link_hosts: Hosts = Field(
        default_factory=list,
        description="hosts that answers may link to, besides the tenant's domains and those of "
        "its knowledge: example.com, *.example.com",
    )
    max_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        None,
        description="Requests in which the model may call tools, 1 to 5; one more without tools "
        "may follow. Null: AGENT_MAX_STEPS.",
    )
    is_debug: bool = Field(
        default=False, description="operators only: clients may ask for a trace of each step"
    )

    def list_changes(self) -> dict[str, object]:
        """The fields that were sent, as they are stored."""
        return self.model_dump(include=self.model_fields_set)


# These decide what a month costs, and what clients can read of a prompt.
OPERATORS_ONLY = frozenset({"models", "is_debug"})

_SETTERS = {
    "models": queries.set_models,
    "instructions": queries.set_instructions,
    "tools": queries.set_tools,
    "acting_tools": queries.set_acting_tools,
    "link_hosts": queries.set_link_hosts,
    "max_steps": queries.set_max_steps,
    "is_debug": queries.set_debug,
}


async def read(database: Database, tenant_id: UUID) -> AgentSettings:
    row = await database.one(queries.read_settings, tenant_id)
    return DEFAULTS if row is None else AgentSettings.from_row(row)


async def update(
    database: Database,
    tenant: Tenant,
    changes: Mapping[str, object],
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> AgentSettings:
    """Set some of the fields of `AgentChanges`."""
    async with database.transaction() as connection:
        if await connection.fetchrow(queries.lock_tenant, tenant.id) is None:
            raise TenantNotFound(
                f"there is no tenant {tenant.slug!r}; `hlas tenant list` shows all"
            )
        row = await connection.fetchrow(queries.read_settings, tenant.id)
        stored = DEFAULTS if row is None else AgentSettings.from_row(row)
        revisions.require(expected, stored.revision)
        before = {name: _as_list(value) for name, value in asdict(stored).items()}
        changed = {name: value for name, value in changes.items() if before[name] != value}
        if not changed:
            return stored
        await _require_models(connection, changed.get("models"))
        await connection.execute(queries.make_settings, tenant.id)
        for name, value in changed.items():
            await connection.execute(_SETTERS[name], tenant.id, value)
        replaced = {name: before[name] for name in changed}
        await record(connection, change, tenant.id, "agent.update", tenant.slug, replaced, changed)
        return AgentSettings.from_row(await connection.fetchrow(queries.read_settings, tenant.id))


async def list_servers(database: Database, tenant_id: UUID) -> list[str]:
    return [row["name"] for row in await database.all(queries.list_servers, tenant_id)]


async def _require_models(connection: asyncpg.Connection, names: object) -> None:
    if not isinstance(names, Sequence):
        return
    known = {row["name"] for row in await connection.fetch(queries.lock_models, names)}
    for name in names:
        if name not in known:
            raise ModelNotFound(f"there is no model {name!r}; `hlas model list` shows all")


def _as_list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
