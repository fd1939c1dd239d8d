"""Authentication and authorisation of administrators, and what all their routes share."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import orjson
from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import errors, log, payloads
from hlas.api.documentation import problems
from hlas.http.asgi import REQUEST
from hlas.http.gate import ADMIN
from hlas.operators import administrators, sign_ins
from hlas.operators.administrators import Administrator
from hlas.services import Services
from hlas.store.db import Confined, Database
from hlas.tenants import tenants
from hlas.tenants.audit import Change
from hlas.tenants.revisions import Expected
from hlas.tenants.tenants import Tenant
from hlas.visitors import sessions

Content = TypeVar("Content", bound=BaseModel)

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"')
# For the OpenAPI document only: the key is read and checked below.
_documented = HTTPBearer(auto_error=False, scheme_name="AdminKey", description="hlas_...")


@dataclass(frozen=True, slots=True)
class Access:
    """An administrator, and a database that is limited to their tenants."""

    administrator: Administrator
    database: Database
    # The key, or that of the sign-in.
    secret: str

    @property
    def digest(self) -> bytes:
        return sign_ins.digest(self.secret)

    @property
    def change(self) -> Change:
        return Change(self.administrator.actor, log.request_id())

    def require_operator(self) -> None:
        if not self.administrator.is_operator:
            raise errors.Forbidden


def reach(services: Services, administrator: Administrator) -> Database:
    """The database itself limits a tenant's administrator to the tenant."""
    if administrator.is_operator:
        return services.operators
    assert administrator.tenant_id is not None
    return Confined(services.tenant_admins, administrator.tenant_id)


async def require_room(request: Request, secret: str) -> None:
    """Refuse an address with too many failed attempts, unless the secret is valid.

    Others at the same address are not locked out, and a guess costs a hash and no SQL.
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
    return Access(administrator, reach(services, administrator), key)


Admin = Annotated[Access, Depends(require_administrator)]


async def require_operator(access: Admin) -> Access:
    access.require_operator()
    return access


async def require_tenant(
    access: Admin, slug: Annotated[str, Path(pattern=tenants.SLUG, description="the tenant's slug")]
) -> Tenant:
    """The tenant of the path, if this administrator may see it."""
    tenant = await tenants.find_tenant(access.database, slug)
    log.bind(tenant_id=str(tenant.id))
    return tenant


# A signature has these in this order, so that an unauthorised caller learns nothing else.
Operator = Annotated[Access, Depends(require_operator)]
PathTenant = Annotated[Tenant, Depends(require_tenant)]

router = APIRouter(
    prefix=ADMIN,
    tags=["administration"],
    dependencies=[Depends(require_administrator)],
    responses=problems(401, 403, 429, 503),
)


class Parameters(BaseModel):
    """Query parameters. Unknown ones are refused: a misspelt filter would show too much."""

    model_config = ConfigDict(extra="forbid")


class Page(Parameters):
    limit: int = Field(50, ge=1, le=100)


def read_body(model: type[Content]) -> Callable[..., Awaitable[Content]]:
    """A dependency that parses the body, which is read only after the key is verified."""

    async def read(request: Request, access: Admin) -> Content:
        services: Services = request.app.state.services
        sent = request.scope[REQUEST]
        with services.uploads.admit(sent, access.administrator.id):
            data = await sent.read()
        try:
            return model.model_validate(payloads.loads(data))
        except ValidationError as error:
            raise payloads.invalid(error) from None

    return read


async def read_if_match(
    _: Admin, request: Request, documented: Annotated[str, Header(alias="If-Match")] = ""
) -> Expected:
    """The revisions the caller is ready to change; `*` is any."""
    del documented  # read raw: the header may be repeated
    values = request.scope[REQUEST].values(b"if-match")
    if not values:
        raise errors.PreconditionRequired
    joined = ", ".join(values).strip()
    if joined == "*":
        return None
    # If-Match uses the strong comparison, in which a weak tag matches nothing (RFC 9110).
    return frozenset(tag for weak, tag in _TAG.findall(joined) if not weak)


IfMatch = Annotated[Expected, Depends(read_if_match)]


def answer(
    value: object,
    status: int = 200,
    *,
    revision: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A JSON response that is not cached; `revision` is its ETag, for If-Match."""
    extra = {} if revision is None else {"ETag": f'"{revision}"'}
    return Response(
        orjson.dumps(value),
        status,
        {"Cache-Control": "no-store", **extra, **(headers or {})},
        media_type="application/json",
    )


def answer_page(name: str, items: Sequence[object], cursor: object) -> Response:
    return answer({name: items, "next_cursor": None if cursor is None else str(cursor)})
