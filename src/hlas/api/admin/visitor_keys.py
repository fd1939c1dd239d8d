"""The keys a tenant's server signs its visitors' identities with."""

from typing import Annotated

from fastapi import Depends, Path, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from hlas.api.admin.access import Admin, PathTenant, answer, read_body, router
from hlas.api.documentation import problems, takes
from hlas.tenants import visitor_keys
from hlas.tenants.visitor_keys import AddedVisitorKey, VisitorKey
from hlas.visitors import identities
from hlas.visitors.identities import Key


def _check_public_key(pem: str) -> str:
    try:
        identities.read_public_key(pem)
    except ValueError:
        raise PydanticCustomError("invalid_public_key", "invalid public key") from None
    return pem


class NewVisitorKey(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    public_key: Annotated[str, AfterValidator(_check_public_key)] | None = Field(
        None, description="PEM: P-256 for ES256, RSA for RS256; null: make a secret for HS256"
    )

    def make_key(self) -> Key:
        if self.public_key is None:
            return identities.make_secret()
        return identities.read_public_key(self.public_key)


class VisitorKeys(BaseModel):
    visitor_keys: list[VisitorKey]


@router.get(
    "/tenants/{slug}/visitor-keys",
    response_model=VisitorKeys,
    summary="List the keys for visitors' identities",
    responses=problems(404, 422),
)
async def list_visitor_keys(access: Admin, tenant: PathTenant) -> Response:
    return answer({"visitor_keys": await visitor_keys.list_keys(access.database, tenant.id)})


@router.post(
    "/tenants/{slug}/visitor-keys",
    status_code=201,
    response_model=AddedVisitorKey,
    summary="Add a key for visitors' identities",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewVisitorKey),
)
async def add_visitor_key(
    access: Admin,
    tenant: PathTenant,
    new: Annotated[NewVisitorKey, Depends(read_body(NewVisitorKey))],
) -> Response:
    """Add a public key, or make a secret and show it this once."""
    key = new.make_key()
    added = await visitor_keys.add(access.database, tenant.id, key, access.change)
    secret = key.material if new.public_key is None else None
    headers = {"Location": f"/admin/tenants/{tenant.slug}/visitor-keys"}
    return answer(added.with_secret(secret), 201, headers=headers)


@router.delete(
    "/tenants/{slug}/visitor-keys/{kid}",
    status_code=204,
    summary="Remove a key for visitors' identities",
    responses=problems(404, 413, 415, 422),
)
async def remove_visitor_key(
    access: Admin,
    tenant: PathTenant,
    kid: Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="the key's id, as listed")],
) -> Response:
    """Refuses new sessions with what it signed; open ones continue, see `sign-out`."""
    await visitor_keys.remove(access.database, tenant.id, kid, access.change)
    return Response(status_code=204)
