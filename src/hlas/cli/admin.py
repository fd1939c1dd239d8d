"""Administrators' keys and the audit from the command line."""

from typing import Annotated, Any

import orjson
import typer

from hlas.cli.database import AsJson, show, with_operators
from hlas.operators import administrators
from hlas.store.db import Database
from hlas.tenants import audit as audits

admin_key = typer.Typer(
    help="Keys to the admin API and the console: add, list, revoke.", no_args_is_help=True
)

Tenant = Annotated[
    str | None, typer.Option(metavar="SLUG", help="A tenant's slug; without it, all tenants.")
]


@admin_key.command("add")
def add_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")],
    tenant: Tenant = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Make a key and show it, once: only its hash is kept."""
    added, key = with_operators(lambda operators: administrators.add(operators, name, tenant))
    reach = f"the tenant {tenant}" if tenant else "all tenants"
    if not as_json:
        typer.echo(f"A key to {reach} for {name}. Keep it now, it is not shown again:", err=True)
    show({**added, "key": key}, as_json=as_json, text=key)
    if not as_json:
        typer.echo("Sign in with it at /console of your Hlas.", err=True)


@admin_key.command("list")
def list_keys(*, as_json: AsJson = False) -> None:
    """List all keys, revoked ones too; none of them can be seen again."""
    found = with_operators(administrators.listed)
    lines = [
        f"{one['prefix']:<16} {one['role']:<9} {one['tenant'] or '-':<20} {_state(one):<28} "
        f"{one['name']}"
        for one in found
    ]
    show(found, as_json=as_json, text="\n".join(lines) or "No keys yet: `hlas admin-key add NAME`.")


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"]:
        return f"revoked {key['revoked_at']:%Y-%m-%d}"
    if key["last_used_at"]:
        return f"used {key['last_used_at']:%Y-%m-%d %H:%M} UTC"
    return "never used"


@admin_key.command("revoke")
def revoke_key(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="The start of the key, as `list` shows it.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """End a key at once."""
    revoked = with_operators(lambda operators: administrators.revoke(operators, prefix))
    show({"prefix": revoked}, as_json=as_json, text=f"Revoked {revoked}.")


def audit(
    tenant: Tenant = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="ACTION", help="tenant.add, or all of tenant, domain, knowledge ..."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="How many, newest first.")
    ] = 50,
    *,
    as_json: AsJson = False,
) -> None:
    """Show who changed what."""

    async def work(operators: Database) -> list[dict[str, Any]]:
        found, _ = await audits.listed(operators, slug=tenant, action=action, limit=limit)
        return found

    found = with_operators(work)
    show(found, as_json=as_json, text="\n".join(map(_line, found)) or "Nothing was changed yet.")


def _line(event: dict[str, Any]) -> str:
    details = {name: event[name] for name in ("before", "after") if event[name]}
    told = orjson.dumps(details).decode() if details else ""
    return (
        f"{event['created_at']:%Y-%m-%d %H:%M:%S} {event['action']:<20} {event['target']:<24} "
        f"by {event['actor']} {told}".rstrip()
    )
