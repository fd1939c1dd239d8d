"""How a tenant's agent answers: models, instructions, tools, hosts that answers may link to."""

from dataclasses import dataclass
from typing import Self

from hlas.agent.models import Model
from hlas.store.db import Database, Queries, Row
from hlas.store.vault import Vault

queries = Queries.beside(__file__)

LONGEST_INSTRUCTIONS = 8000


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
    return Assignment(
        settings=AgentSettings.from_row(first),
        models=tuple(Model.from_row(row, vault) for row in rows),
        canary=first["canary"],
        tenant_name=first["tenant_name"],
        domains=tuple(first["domains"]),
        is_paid=first["is_paid"],
    )
