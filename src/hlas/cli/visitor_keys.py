"""The keys for visitors' identities from the command line."""

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from hlas.cli.database import AsJson, show, with_operators
from hlas.errors import TenantError
from hlas.store.db import Database
from hlas.tenants import tenants
from hlas.tenants import visitor_keys as keys
from hlas.tenants.visitor_keys import VisitorKey
from hlas.visitors import identities
from hlas.visitors.identities import Key

visitor_key = typer.Typer(
    help="Keys a tenant's server signs its visitors' ids with.",
    no_args_is_help=True,
)

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The tenant's slug.")]


async def _find_tenant_id(operators: Database, slug: str) -> UUID:
    return (await tenants.find_tenant(operators, slug)).id


@visitor_key.command("add")
def add_key(
    slug: Slug,
    public_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A PEM file: P-256 for ES256, RSA for RS256; without it, HS256."
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a public key, or make a secret and show it once."""
    key = identities.make_secret() if public_key is None else _read(public_key)

    async def work(operators: Database) -> VisitorKey:
        return await keys.add(operators, await _find_tenant_id(operators, slug), key)

    added = with_operators(work)
    if public_key is not None:
        show(added, as_json=as_json, text=f"{slug} may sign with {key.kid} ({key.algorithm}).")
        return
    if not as_json:
        notice = f"The secret of the key {key.kid} of {slug}. Copy it now, it is not shown again:"
        typer.echo(notice, err=True)
    show(added.with_secret(key.material), as_json=as_json, text=key.material)


def _read(path: Path) -> Key:
    try:
        return identities.read_public_key(path.read_text("utf-8"))
    except OSError as error:
        raise TenantError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TenantError(f"{path}: {error}") from None


@visitor_key.command("list")
def list_keys(slug: Slug, *, as_json: AsJson = False) -> None:
    """List a tenant's keys, without their secrets."""

    async def work(operators: Database) -> list[VisitorKey]:
        return await keys.list_keys(operators, await _find_tenant_id(operators, slug))

    found = with_operators(work)
    lines = [f"{one.kid}  {one.algorithm}  {one.created_at:%Y-%m-%d}" for one in found]
    show(found, as_json=as_json, text="\n".join(lines) or "No keys yet: `hlas visitor-key add`.")


@visitor_key.command("remove")
def remove_key(
    slug: Slug,
    kid: Annotated[str, typer.Argument(metavar="KID", help="The key's id, as `list` shows it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Refuse what a key signs from now on.

    `hlas tenant sign-out` also ends open sessions.
    """

    async def work(operators: Database) -> None:
        await keys.remove(operators, await _find_tenant_id(operators, slug), kid)

    with_operators(work)
    show({"slug": slug, "kid": kid}, as_json=as_json, text=f"{slug} no longer signs with {kid}.")
