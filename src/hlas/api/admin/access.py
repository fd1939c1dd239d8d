"""Who asks, what they may touch, and what every route of administrators has in common."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import errors, log, payloads
from hlas.api.documentation import problems
from hlas.http.asgi import REQUEST
from hlas.http.gate import ADMIN
from hlas.operators import administrators
from hlas.operators.administrators import Administrator
from hlas.services import Services
from hlas.store.db import Confined, Database
from hlas.tenants import revisions, tenants
from hlas.tenants.audit import Change
from hlas.tenants.revisions import Expected
from hlas.visitors import sessions

Content = TypeVar("Content", bound=BaseModel)

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"')
# Only so that the documentation knows where the key goes; it is read and judged below.
_documented = HTTPBearer(auto_error=False, scheme_name="AdminKey", description="hlas_...")


@dataclass(frozen=True, slots=True)
class Access:
    """An administrator, and a database that shows them their tenants and no other."""

    administrator: Administrator
    database: Database

    @property
    def change(self) -> Change:
        return Change(self.administrator.actor, log.request_id())

    def require_operator(self) -> None:
        if not self.administrator.is_operator:
            raise errors.Forbidden


def reach(services: Services, administrator: Administrator) -> Database:
    """A tenant's administrator is held to the tenant by the database itself."""
    if administrator.is_operator:
        return services.operators
    assert administrator.tenant_id is not None
    return Confined(services.tenant_admins, administrator.tenant_id)


async def require_room(request: Request, secret: str) -> None:
    """Refuse an address with too many bad tries, unless the secret is a good one.

    So nobody is locked out by whoever shares the address, and a bad try costs a hash and no SQL.
    """
    services: Services = request.app.state.services
    try:
        await services.gate.require_room(request.scope[REQUEST], ADMIN)
    except errors.RateLimited:
        if not await services.known_secrets.contain(secret):
            raise


async def require_administrator(
    request: Request, _: Annotated[object, Depends(_documented)]
) -> Access:
    services: Services = request.app.state.services
    given = request.scope[REQUEST].values(b"authorization")
    await require_room(request, "".join(given).partition(" ")[2])
    try:
        key = sessions.bearer(given)
        administrator = await administrators.verify(services.operators, key)
    except errors.AuthenticationError:
        await services.gate.consume(request.scope[REQUEST], ADMIN)
        raise
    log.bind(administrator_id=administrator.id)
    await services.gate.consume_key(administrator.id)
    return Access(administrator, reach(services, administrator))


Admin = Annotated[Access, Depends(require_administrator)]


async def require_operator(access: Admin) -> Access:
    access.require_operator()
    return access


async def require_tenant(
    access: Admin, slug: Annotated[str, Path(pattern=tenants.SLUG, description="the tenant's slug")]
) -> dict[str, Any]:
    """The tenant of the path, if it is there for this administrator."""
    found = await tenants.by_slug(access.database, slug)
    log.bind(tenant_id=found["id"])
    return found


async def require_tenant_id(tenant: Annotated[dict[str, Any], Depends(require_tenant)]) -> UUID:
    return UUID(tenant["id"])


# In a signature these stand in this order, so that who may not ask learns nothing else.
Operator = Annotated[Access, Depends(require_operator)]
Tenant = Annotated[dict[str, Any], Depends(require_tenant)]
TenantId = Annotated[UUID, Depends(require_tenant_id)]

router = APIRouter(
    prefix=ADMIN,
    tags=["administration"],
    dependencies=[Depends(require_administrator)],
    responses=problems(401, 403, 429, 503),
)


class Parameters(BaseModel):
    """Query parameters: unknown ones are refused, since a misspelt filter would show too much."""

    model_config = ConfigDict(extra="forbid")


class Page(Parameters):
    limit: int = Field(50, ge=1, le=100)


def content(model: type[Content]) -> Callable[..., Awaitable[Content]]:
    """The body as a model, read only once the key was found good."""

    async def read(request: Request, _: Admin) -> Content:
        try:
            return model.model_validate(payloads.loads(await request.scope[REQUEST].read()))
        except ValidationError as error:
            raise payloads.invalid(error) from None

    return read


async def if_match(
    _: Admin, request: Request, documented: Annotated[str, Header(alias="If-Match")] = ""
) -> Expected:
    """The states the caller is ready to change; `*` is any."""
    del documented  # read raw: it may come in several lines
    values = request.scope[REQUEST].values(b"if-match")
    if not values:
        raise errors.PreconditionRequired
    joined = ", ".join(values).strip()
    if joined == "*":
        return None
    # A weak tag says alike, not the same, so it matches nothing here.
    return frozenset(tag for weak, tag in _TAG.findall(joined) if not weak)


IfMatch = Annotated[Expected, Depends(if_match)]


def answer(
    value: Any, status: int = 200, *, tagged: bool = False, headers: dict[str, str] | None = None
) -> Response:
    """JSON that nobody keeps; `tagged` with what If-Match will want."""
    extra = {"ETag": f'"{revisions.tag(value)}"'} if tagged else {}
    return Response(
        orjson.dumps(value),
        status,
        {"Cache-Control": "no-store", **extra, **(headers or {})},
        media_type="application/json",
    )


def page_of(name: str, items: list[dict[str, Any]], following: Any) -> Response:
    cursor = None if following is None else str(following)
    return answer({name: items, "next_cursor": cursor})
