"""Tenants and their domains from the command line."""

from typing import Annotated
from uuid import UUID

import typer

from hlas import tenants, visitor_keys
from hlas.cli.database import AsJson, show, with_operators
from hlas.db import Database
from hlas.tenants import IdentityMode

tenant = typer.Typer(
    help="Websites' owners: add, list, enable, disable, identity, sign-out, remove.",
    no_args_is_help=True,
)
domain = typer.Typer(help="The domains a tenant's widget may be used on.", no_args_is_help=True)

Slug = Annotated[str, typer.Argument(help="The tenant's slug.")]
Domain = Annotated[
    str, typer.Argument(help="example.com, *.example.com, http://example.com:8080, localhost")
]


@tenant.command("add")
def add_tenant(
    name: Annotated[str, typer.Argument(help="The name people know it by.")],
    slug: Annotated[str, typer.Option(help="Its short name: a-z, 0-9 and -.")],
    domain: Annotated[
        list[str] | None, typer.Option(help="A domain it allows; may be repeated.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a tenant."""
    added = with_operators(lambda operators: tenants.add(operators, name, slug, domain or []))
    domains = ", ".join(added["domains"]) or "no domain yet: `hlas domain add`"
    show(added, as_json=as_json, text=f"Added {slug} ({domains}).")


@tenant.command("list")
def list_tenants(*, as_json: AsJson = False) -> None:
    """List all tenants."""
    found = with_operators(tenants.listed)
    lines = [
        f"{one['slug']:<20} {'active' if one['is_active'] else 'disabled':<9} {one['name']:<24} "
        f"{', '.join(one['domains'])}"
        for one in found
    ]
    show(found, as_json=as_json, text="\n".join(lines) or "No tenants yet: `hlas tenant add`.")


@tenant.command()
def enable(slug: Slug, *, as_json: AsJson = False) -> None:
    """Let a tenant's visitors in again."""
    with_operators(lambda operators: tenants.set_active(operators, slug, active=True))
    show({"slug": slug, "is_active": True}, as_json=as_json, text=f"Enabled {slug}.")


@tenant.command()
def disable(slug: Slug, *, as_json: AsJson = False) -> None:
    """Stop a tenant's sessions and origins at once; nothing is deleted."""
    with_operators(lambda operators: tenants.set_active(operators, slug, active=False))
    show({"slug": slug, "is_active": False}, as_json=as_json, text=f"Disabled {slug}.")


@tenant.command()
def identity(
    slug: Slug,
    mode: Annotated[IdentityMode, typer.Argument(help="Whether visitors prove who they are.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Let visitors prove who they are with what the tenant's server signs, or make them."""

    async def work(operators: Database) -> bool:
        changed = await tenants.update(operators, slug, {"identity_mode": mode})
        return bool(await visitor_keys.listed(operators, UUID(changed["id"])))

    has_key = with_operators(work)
    told = f"{slug}: identities are {mode}."
    if mode != "off" and not has_key:
        told += f" There is no key yet: `hlas visitor-key add {slug}`."
    show({"slug": slug, "identity_mode": mode}, as_json=as_json, text=told)


@tenant.command("sign-out")
def sign_out(slug: Slug, *, as_json: AsJson = False) -> None:
    """End every visitor's session of a tenant at once."""
    with_operators(lambda operators: tenants.sign_out(operators, slug))
    show({"slug": slug}, as_json=as_json, text=f"Signed out every visitor of {slug}.")


@tenant.command()
def remove(
    slug: Slug,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a tenant with all its conversations and messages."""
    if not yes:
        typer.confirm(f"Delete {slug} with all its conversations for good?", abort=True)
    with_operators(lambda operators: tenants.remove(operators, slug))
    show({"slug": slug}, as_json=as_json, text=f"Removed {slug}.")


@domain.command("add")
def add_domain(slug: Slug, name: Domain, *, as_json: AsJson = False) -> None:
    """Allow a domain."""
    added = with_operators(lambda operators: tenants.add_domain(operators, slug, name))
    show({"slug": slug, "domain": added}, as_json=as_json, text=f"{slug} allows {added}.")


@domain.command("list")
def list_domains(slug: Slug, *, as_json: AsJson = False) -> None:
    """List the domains of a tenant."""
    found = with_operators(lambda operators: tenants.by_slug(operators, slug))["domains"]
    show(found, as_json=as_json, text="\n".join(found) or "No domains yet: `hlas domain add`.")


@domain.command("remove")
def remove_domain(slug: Slug, name: Domain, *, as_json: AsJson = False) -> None:
    """Stop allowing a domain."""
    removed = with_operators(lambda operators: tenants.remove_domain(operators, slug, name))
    show(
        {"slug": slug, "domain": removed},
        as_json=as_json,
        text=f"{slug} no longer allows {removed}.",
    )
