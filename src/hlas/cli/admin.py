"""Administrators' keys and the audit from the command line."""

from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from hlas.cli.database import AsJson, show, with_operators
from hlas.operators import administrators
from hlas.operators.administrators import AdminKey
from hlas.store.db import Database
from hlas.tenants import audit as audits
from hlas.tenants.audit import Event

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
    """Make a key and show it once: only its hash is stored."""
    added, key = with_operators(lambda operators: administrators.add(operators, name, tenant))
    reach = f"the tenant {tenant}" if tenant else "all tenants"
    if not as_json:
        typer.echo(f"A key to {reach} for {name}. Copy it now, it is not shown again:", err=True)
    show({**asdict(added), "key": key}, as_json=as_json, text=key)
    if not as_json:
        typer.echo("Sign in with it at /console of your Hlas.", err=True)


@admin_key.command("list")
def list_keys(*, as_json: AsJson = False) -> None:
    """List all keys, revoked ones too, without their secrets."""
    found = with_operators(administrators.list_keys)
    lines = [
        f"{key.prefix:<16} {key.role:<9} {key.tenant or '-':<20} {_show_use(key):<28} {key.name}"
        for key in found
    ]
    show(found, as_json=as_json, text="\n".join(lines) or "No keys yet: `hlas admin-key add NAME`.")


def _show_use(key: AdminKey) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.last_used_at:
        return f"used {key.last_used_at:%Y-%m-%d %H:%M} UTC"
    return "never used"


@admin_key.command("revoke")
def revoke_key(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="The start of the key, as `list` shows it.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Revoke a key at once."""
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

    async def work(operators: Database) -> list[Event]:
        found, _ = await audits.list_events(operators, slug=tenant, action=action, limit=limit)
        return found

    found = with_operators(work)
    show(found, as_json=as_json, text="\n".join(map(_line, found)) or "No changes yet.")


def _line(event: Event) -> str:
    changes = {"before": event.before, "after": event.after}
    given = {name: content for name, content in changes.items() if content}
    details = orjson.dumps(given).decode() if given else ""
    return (
        f"{event.created_at:%Y-%m-%d %H:%M:%S} {event.action:<20} {event.target:<24} "
        f"by {event.actor} {details}".rstrip()
    )
