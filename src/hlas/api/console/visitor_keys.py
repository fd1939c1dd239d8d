"""The keys a tenant's server signs its visitors' identities with."""

from uuid import UUID

from fastapi import Response
from pydantic import ValidationError

from hlas import errors
from hlas.api.admin.visitor_keys import NewVisitorKey
from hlas.api.console.access import CONSOLE, Sent, Signed, Tenant, complaints, go, router
from hlas.api.console.tenants import tenant_page
from hlas.tenants import visitor_keys


@router.post("/tenants/{slug}/visitor-keys")
async def add_visitor_key(visit: Signed, tenant: Tenant, form: Sent) -> Response:
    """A secret is on the page that answers, and on no other."""
    try:
        new = NewVisitorKey(public_key=form.get("public_key", "").strip() or None)
    except ValidationError as error:
        return await tenant_page(visit, tenant, 422, problems=complaints(error))
    key = new.key()
    try:
        added = await visitor_keys.add(visit.database, UUID(tenant["id"]), key, visit.change)
    except errors.TooManyVisitorKeys as error:
        return await tenant_page(visit, tenant, 409, problems={"public_key": error.message})
    if new.public_key is None:
        shown = {**added, "secret": key.material}
        return await tenant_page(visit, tenant, added=shown)
    return go(f"{CONSOLE}/tenants/{tenant['slug']}", "added")


@router.post("/tenants/{slug}/visitor-keys/remove")
async def remove_visitor_key(visit: Signed, tenant: Tenant, form: Sent) -> Response:
    await visitor_keys.remove(visit.database, UUID(tenant["id"]), form.get("kid", ""), visit.change)
    return go(f"{CONSOLE}/tenants/{tenant['slug']}", "removed")
