"""How a tenant's agent answers, from the command line."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hlas.agent import agent_settings
from hlas.agent.agent_settings import AgentChanges, AgentSettings
from hlas.agent.money import budgets, dollars
from hlas.agent.money.budgets import CapName, Caps
from hlas.cli.database import AsJson, show, validate, with_operators
from hlas.errors import TenantError
from hlas.store.db import Database
from hlas.tenants import tenants

agent = typer.Typer(help="How a tenant's agent answers: set, show.", no_args_is_help=True)

Tenant = Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")]


@agent.command("show")
def show_agent(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """Show how a tenant's agent answers."""
    settings, caps = with_operators(lambda operators: _read(operators, tenant))
    _show(tenant, settings, caps, as_json=as_json)


@agent.command("set")
def change_agent(
    tenant: Tenant,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A model to answer with; repeated: tried in this order."),
    ] = None,
    instructions_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the model is told; at most 8000 characters."),
    ] = None,
    max_steps: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Requests in which the model may call tools, 1 to 5; one more without tools may "
            "follow. Or default.",
        ),
    ] = None,
    cap_day: Annotated[
        str | None, typer.Option(metavar="USD", help="The most that a day may cost; off: no cap.")
    ] = None,
    cap_month: Annotated[
        str | None, typer.Option(metavar="USD", help="The most that a month may cost, or off.")
    ] = None,
    cap_conversation: Annotated[
        str | None, typer.Option(metavar="USD", help="The most that a conversation may cost.")
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Tools it may use: search_knowledge, get_product, hand_over, server__tool, "
            "server__*; empty: none.",
        ),
    ] = None,
    acting: Annotated[
        str | None, typer.Option(metavar="A,B", help="Those that the visitor has to confirm.")
    ] = None,
    link_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A host that answers may link to; may be repeated."),
    ] = None,
    *,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Answer from the knowledge, without a model.")
    ] = False,
    no_link_host: Annotated[
        bool, typer.Option("--no-link-host", help="Only hosts of the tenant and its knowledge.")
    ] = False,
    debug: Annotated[
        bool | None,
        typer.Option("--debug/--no-debug", help="Let clients ask for a trace of each step."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change how a tenant's agent answers. What is not given stays as it is."""
    if (no_model and model) or (no_link_host and link_host):
        raise TenantError("give --model or --no-model, --link-host or --no-link-host, not both")
    given: dict[str, object] = {
        "models": [] if no_model else model or None,
        "instructions": _read_text(instructions_file),
        "tools": _split(tools),
        "acting_tools": _split(acting),
        "link_hosts": [] if no_link_host else link_host or None,
        "is_debug": debug,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if max_steps is not None:
        given["max_steps"] = _parse_steps(max_steps)
    wanted: list[tuple[CapName, str | None]] = [
        ("day", cap_day),
        ("month", cap_month),
        ("conversation", cap_conversation),
    ]
    caps = {name: _parse_cap(name, text) for name, text in wanted if text is not None}
    if not given and not caps:
        raise TenantError("nothing to change; see `hlas agent set --help`")
    changes = validate(AgentChanges, given).list_changes()
    settings, after = with_operators(lambda operators: _change(operators, tenant, changes, caps))
    _show(tenant, settings, after, as_json=as_json)


async def _change(
    operators: Database,
    slug: str,
    changes: Mapping[str, object],
    caps: Mapping[CapName, int | None],
) -> tuple[AgentSettings, Caps]:
    tenant = await tenants.find_tenant(operators, slug)
    if changes:
        await agent_settings.update(operators, tenant, changes)
    if caps:
        await budgets.set_caps(operators, slug, caps)
    return await _read(operators, slug)


async def _read(operators: Database, slug: str) -> tuple[AgentSettings, Caps]:
    tenant = await tenants.find_tenant(operators, slug)
    [budget] = await budgets.list_budgets(operators, slug)
    return await agent_settings.read(operators, tenant.id), budget.caps


def _show(tenant: str, settings: AgentSettings, caps: Caps, *, as_json: bool) -> None:
    shown = {f"cap_{name}": budgets.show_cap(cap) for name, cap in caps.by_name().items()}
    lines = {
        "models": ", ".join(settings.models) or "none: answers come from the knowledge",
        "tools": ", ".join(settings.tools) or "none",
        "to confirm": ", ".join(settings.acting_tools) or "none",
        "link hosts": ", ".join(settings.link_hosts) or "those of its domains and knowledge",
        "max steps": str(settings.max_steps or "default"),
        "debug": "on" if settings.is_debug else "off",
        **{
            name.replace("_", " "): "off" if cap is None else f"{cap} USD"
            for name, cap in shown.items()
        },
        "instructions": f"\n\n{settings.instructions}" if settings.instructions else "none",
    }
    text = "\n".join(f"{name:<17} {value}".rstrip() for name, value in lines.items())
    show({"tenant": tenant, **asdict(settings), **shown}, as_json=as_json, text=text)


def _read_text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise TenantError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TenantError(f"{path} is not UTF-8 text") from None


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _parse_steps(text: str) -> int | None:
    if text == "default":
        return None
    if text not in {"1", "2", "3", "4", "5"}:
        raise TenantError("max steps: write 1 to 5, or default")
    return int(text)


def _parse_cap(name: CapName, text: str) -> int | None:
    if text == "off":
        return None
    try:
        return dollars.parse(text)
    except ValueError as error:
        raise TenantError(f"cap {name}: {error}, or off") from None
