"""The keys a tenant's server signs its visitors' identities with."""

from fastapi import Response
from pydantic import ValidationError

from hlas import errors
from hlas.api.admin.visitor_keys import NewVisitorKey
from hlas.api.console.access import CONSOLE, PathTenant, Sent, Signed, explain, go, router
from hlas.api.console.tenants import tenant_page
from hlas.tenants import visitor_keys


@router.post("/tenants/{slug}/visitor-keys")
async def add_visitor_key(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """A secret is shown on the page of this response only."""
    try:
        new = NewVisitorKey(public_key=form.get("public_key", "").strip() or None)
    except ValidationError as error:
        return await tenant_page(visit, tenant, 422, problems=explain(error))
    key = new.make_key()
    try:
        added = await visitor_keys.add(visit.database, tenant.id, key, visit.change)
    except errors.TooManyVisitorKeys as error:
        return await tenant_page(visit, tenant, 409, problems={"public_key": error.message})
    if new.public_key is None:
        return await tenant_page(visit, tenant, added=added.with_secret(key.material))
    return go(f"{CONSOLE}/tenants/{tenant.slug}", "added")


@router.post("/tenants/{slug}/visitor-keys/remove")
async def remove_visitor_key(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    await visitor_keys.remove(visit.database, tenant.id, form.get("kid", ""), visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}", "removed")
