"""Tenants and their domains from the command line."""

from collections.abc import Sequence
from typing import Annotated

import typer

from hlas.cli.database import AsJson, show, with_operators
from hlas.store.db import Database
from hlas.tenants import tenants, visitor_keys
from hlas.tenants.tenants import Handler, IdentityMode, Tenant
from hlas.visitors.origins import LOCAL_HOSTS, AllowedDomain

tenant = typer.Typer(
    help="Websites' owners: add, list, disable, sign out, remove ...",
    no_args_is_help=True,
)
domain = typer.Typer(help="The domains a tenant's widget may be used on.", no_args_is_help=True)

Slug = Annotated[str, typer.Argument(metavar="SLUG", help="The tenant's slug.")]
Domain = Annotated[
    str,
    typer.Argument(
        metavar="DOMAIN", help="shop.example, *.shop.example, http://127.0.0.1:5500 ..."
    ),
]


@tenant.command("add")
def add_tenant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name people know it by.")],
    slug: Annotated[str, typer.Option(metavar="SLUG", help="Its short name: a-z, 0-9 and -.")],
    domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN",
            help="A domain it allows: shop.example, *.shop.example, http://127.0.0.1:5500; may be "
            "repeated.",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a tenant. Creates the embedded database if there is none."""

    async def work(operators: Database) -> Tenant:
        added = await tenants.add(operators, name, slug, domain or [])
        await _warn(operators, slug, added.domains)
        return added

    added = with_operators(work, make=True)
    show(added, as_json=as_json, text=_list_next_steps(slug, added.domains))


async def _warn(operators: Database, slug: str, domains: Sequence[str]) -> None:
    """Warn about other tenants' domains that take precedence over these."""
    for one in await tenants.find_preceding_domains(operators, slug, domains):
        order = f"{one.other_domain} of {one.other_slug} takes precedence over {one.domain}"
        typer.echo(f"note: {order}; pages that match both belong to {one.other_slug}", err=True)


def _list_next_steps(slug: str, domains: Sequence[str]) -> str:
    if not domains:
        return f"Added {slug}.\n  allow     hlas domain add {slug} shop.example"
    page = domains[0].replace("*.", "www.")
    local = AllowedDomain.parse(page).host in LOCAL_HOSTS
    if "://" not in page:
        page = f"http://{page}" if local else f"https://{page}"
    base = "http://127.0.0.1:8000" if local else "https://chat.example.com"
    return "\n".join(
        [
            f"Added {slug} ({', '.join(domains)}).",
            f'  page      <script type="module" src="{base}/widget.js"></script>',
            f"  answers   hlas knowledge import FILE --tenant {slug}",
            f"  check     hlas doctor --page {page} --url {base}",
        ]
    )


@tenant.command("list")
def list_tenants(*, as_json: AsJson = False) -> None:
    """List all tenants."""
    found = with_operators(tenants.list_tenants)
    lines = [f"{'SLUG':<20} {'STATE':<9} {'NAME':<24} DOMAINS"]
    lines += [
        f"{one.slug:<20} {'active' if one.is_active else 'disabled':<9} {one.name:<24} "
        f"{', '.join(one.domains)}"
        for one in found
    ]
    text = "\n".join(lines) if found else "No tenants yet: `hlas tenant add`."
    show(found, as_json=as_json, text=text)


@tenant.command()
def enable(slug: Slug, *, as_json: AsJson = False) -> None:
    """Let a tenant's visitors in again."""
    with_operators(lambda operators: tenants.set_active(operators, slug, active=True))
    show({"slug": slug, "is_active": True}, as_json=as_json, text=f"Enabled {slug}.")


@tenant.command()
def disable(slug: Slug, *, as_json: AsJson = False) -> None:
    """Stop a tenant's sessions and origins at once.

    Nothing is deleted.
    """
    with_operators(lambda operators: tenants.set_active(operators, slug, active=False))
    show({"slug": slug, "is_active": False}, as_json=as_json, text=f"Disabled {slug}.")


@tenant.command()
def identity(
    slug: Slug,
    mode: Annotated[
        IdentityMode,
        typer.Argument(
            metavar="MODE", help="Whether visitors prove who they are: off, optional, required."
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Allow or require visitors to prove who they are.

    The tenant's server signs their ids: see `hlas visitor-key`.
    """

    async def work(operators: Database) -> bool:
        changed = await tenants.update(operators, slug, {"identity_mode": mode})
        return bool(await visitor_keys.list_keys(operators, changed.id))

    has_key = with_operators(work)
    text = f"{slug}: identities are {mode}."
    if mode != "off" and not has_key:
        text += f" There is no key yet: `hlas visitor-key add {slug}`."
    show({"slug": slug, "identity_mode": mode}, as_json=as_json, text=text)


@tenant.command()
def handler(
    slug: Slug,
    who: Annotated[
        Handler, typer.Argument(metavar="WHO", help="Who answers new conversations: agent, human.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Let the agent or people answer new conversations.

    Conversations that are open keep their handler.
    """
    with_operators(lambda operators: tenants.update(operators, slug, {"handler": who}))
    answering = "the agent answers" if who == "agent" else "people answer"
    text = f"{slug}: {answering} new conversations."
    show({"slug": slug, "handler": who}, as_json=as_json, text=text)


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
        typer.confirm(
            f"Delete {slug} with all its conversations? This cannot be undone.", abort=True
        )
    with_operators(lambda operators: tenants.remove(operators, slug))
    show({"slug": slug}, as_json=as_json, text=f"Removed {slug}.")


@domain.command("add")
def add_domain(slug: Slug, name: Domain, *, as_json: AsJson = False) -> None:
    """Allow a domain."""

    async def work(operators: Database) -> str:
        added = await tenants.add_domain(operators, slug, name)
        await _warn(operators, slug, [added])
        return added

    added = with_operators(work)
    show({"slug": slug, "domain": added}, as_json=as_json, text=f"{slug} allows {added}.")


@domain.command("list")
def list_domains(slug: Slug, *, as_json: AsJson = False) -> None:
    """List the domains of a tenant."""
    found = with_operators(lambda operators: tenants.find_tenant(operators, slug)).domains
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
