"""The keys a tenant's server signs its visitors' identities with."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from hlas.api.admin.access import Admin, Tenant, TenantId, answer, content, router
from hlas.api.documentation import problems, takes
from hlas.tenants import visitor_keys
from hlas.visitors import identities
from hlas.visitors.identities import Algorithm, Key


def _public_key(pem: str) -> str:
    try:
        identities.read_public_key(pem)
    except ValueError:
        raise PydanticCustomError("invalid_public_key", "invalid public key") from None
    return pem


class NewVisitorKey(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    public_key: Annotated[str, AfterValidator(_public_key)] | None = Field(
        None, description="PEM: P-256 for ES256, RSA for RS256; null: a secret for HS256 is made"
    )

    def key(self) -> Key:
        if self.public_key is None:
            return identities.make_secret()
        return identities.read_public_key(self.public_key)


class VisitorKey(BaseModel):
    kid: str = Field(description="what tokens name the key by, in their header")
    algorithm: Algorithm
    created_at: datetime


class AddedVisitorKey(VisitorKey):
    secret: str | None = Field(description="of HS256, here and never again")


class VisitorKeys(BaseModel):
    visitor_keys: list[VisitorKey]


@router.get(
    "/tenants/{slug}/visitor-keys",
    response_model=VisitorKeys,
    summary="List the keys for visitors' identities",
    responses=problems(404, 422),
)
async def list_visitor_keys(access: Admin, tenant_id: TenantId) -> Response:
    return answer({"visitor_keys": await visitor_keys.listed(access.database, tenant_id)})


@router.post(
    "/tenants/{slug}/visitor-keys",
    status_code=201,
    response_model=AddedVisitorKey,
    summary="Add a key for visitors' identities",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewVisitorKey),
)
async def add_visitor_key(
    access: Admin, tenant: Tenant, new: Annotated[NewVisitorKey, Depends(content(NewVisitorKey))]
) -> Response:
    """A public key of the tenant's, or a secret that is made here and shown this once."""
    key = new.key()
    added = await visitor_keys.add(access.database, UUID(tenant["id"]), key, access.change)
    secret = key.material if new.public_key is None else None
    headers = {"Location": f"/admin/tenants/{tenant['slug']}/visitor-keys"}
    return answer({**added, "secret": secret}, 201, headers=headers)


@router.delete(
    "/tenants/{slug}/visitor-keys/{kid}",
    status_code=204,
    summary="Remove a key for visitors' identities",
    responses=problems(404, 413, 415, 422),
)
async def remove_visitor_key(
    access: Admin,
    tenant_id: TenantId,
    kid: Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="as it is listed")],
) -> Response:
    """What it signed opens no session any more; open ones go on, see `sign-out`."""
    await visitor_keys.remove(access.database, tenant_id, kid, access.change)
    return Response(status_code=204)
