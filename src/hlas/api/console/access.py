"""Who is signed in, and what every page of the console has in common."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError

from hlas import errors, log
from hlas.api.admin.access import Access, reach, require_room
from hlas.api.console import cookies, pages
from hlas.http.asgi import REQUEST
from hlas.http.gate import ADMIN
from hlas.operators import sign_ins
from hlas.services import Services
from hlas.tenants import tenants
from hlas.tenants.tenants import SLUG
from hlas.visitors.origins import Origin

CONSOLE = "/console"
SIGN_IN = "/console/sign-in"
MOST_FIELDS = 100
# No field takes more digits, and `int` raises on thousands of them.
_NUMBER = re.compile(r"[0-9]{1,18}")

Form = dict[str, str]


class SignInNeeded(Exception):
    """Nobody is signed in; after signing in they go on where they were."""


@dataclass(frozen=True, slots=True)
class Visit(Access):
    """An administrator at the console."""

    secret: str
    request: Request

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page as this administrator sees it; `policy` changes lines of its content policy."""
        return pages.page(
            template,
            status,
            me=self.administrator,
            form_token=sign_ins.form_token(self.secret),
            path=self.request.url.path,
            done=pages.DONE.get(self.request.query_params.get("done", "")),
            **values,
        )


class ConsoleRoute(APIRoute):
    """People get pages: also when something is refused or nobody is signed in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_for_people(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                wanted = request.url.path if request.method == "GET" else CONSOLE
                return go(f"{SIGN_IN}?next={quote(wanted)}")
            except errors.HlasError as error:
                refusal = error
            except RequestValidationError:
                refusal = errors.NotFound()
            request.app.state.finish.report(request.scope[REQUEST], refusal)
            answer = pages.page(
                "problem.html",
                refusal.status,
                message=refusal.message,
                request_id=log.request_id(),
            )
            answer.headers.update(refusal.headers)
            return answer

        return handle_for_people


def go(path: str, done: str = "") -> Response:
    """Elsewhere, with GET; `done` says there what has happened."""
    return RedirectResponse(f"{path}?done={done}" if done else path, 303)


def require_own_page(request: Request) -> None:
    """Browsers say where a form comes from; what does not come from a page of ours is refused."""
    sites = request.scope[REQUEST].values(b"sec-fetch-site")
    origins = request.scope[REQUEST].values(b"origin")
    hosts = request.scope[REQUEST].values(b"host")
    if set(sites) - {"same-origin"} or not all(_is_own(origin, hosts) for origin in origins):
        raise errors.FormRefused


def _is_own(text: str, hosts: Sequence[str]) -> bool:
    """Whether an Origin is that of the Host that was asked."""
    origin = Origin.parse(text)
    if origin is None or len(hosts) != 1:
        return False
    # The scheme is the browser's, since a proxy may have ended TLS without telling us.
    own = Origin.parse(f"{origin.scheme}://{hosts[0]}")
    # Proxies may leave the port out of Host (nginx: `$host`).
    return own == origin or (own is not None and hosts[0].lower() == own.host == origin.host)


async def read_form(request: Request, secret: str) -> Form:
    """The fields of a form that carries the token of this secret."""
    try:
        text = (await request.scope[REQUEST].read()).decode()
        fields = parse_qsl(
            text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError:
        raise errors.InvalidRequest.at("body", kind="form_invalid") from None
    form = {name: value.replace("\r\n", "\n") for name, value in fields}
    if not sign_ins.is_form_token(secret, form.pop("form_token", "")):
        raise errors.FormRefused
    return form


async def require_signed_in(request: Request) -> Visit:
    """The guard of every page: someone signed in and, where something changes, our own form."""
    services: Services = request.app.state.services
    secret = cookies.read(request, cookies.SESSION)
    if not secret:
        raise SignInNeeded
    await require_room(request, secret)
    try:
        administrator = await sign_ins.holder(services.operators, secret)
    except errors.InvalidAdminKey:
        await services.gate.consume(request.scope[REQUEST], ADMIN)
        raise SignInNeeded from None
    log.bind(administrator_id=administrator.id)
    await services.gate.consume_key(administrator.id)
    if request.method != "GET":
        require_own_page(request)
        request.state.form = await read_form(request, secret)
    return Visit(administrator, reach(services, administrator), secret, request)


Signed = Annotated[Visit, Depends(require_signed_in)]


async def sent_form(_: Signed, request: Request) -> Form:
    form: Form = request.state.form
    return form


async def require_tenant(visit: Signed, slug: Annotated[str, Path(pattern=SLUG)]) -> dict[str, Any]:
    found = await tenants.by_slug(visit.database, slug)
    log.bind(tenant_id=found["id"])
    return found


async def chosen_tenant(visit: Visit, slug: str) -> dict[str, Any] | None:
    """The tenant a list is narrowed to; one that is not there must not show everything."""
    if not slug:
        return None
    if not re.fullmatch(SLUG, slug):
        raise errors.NotFound
    return await tenants.by_slug(visit.database, slug)


async def operator_only(visit: Signed) -> Visit:
    visit.require_operator()
    return visit


Sent = Annotated[Form, Depends(sent_form)]
Tenant = Annotated[dict[str, Any], Depends(require_tenant)]
Operator = Annotated[Visit, Depends(operator_only)]

router = APIRouter(
    prefix=CONSOLE, dependencies=[Depends(require_signed_in)], route_class=ConsoleRoute
)


async def attempt(work: Awaitable[Any]) -> str | None:
    """Try a change; what people can fix is a sentence for them, anything else goes on."""
    try:
        await work
    except errors.HlasError as error:
        if error.status >= 500 or error.status in {401, 403}:
            raise
        return error.message
    return None


def complaints(error: ValidationError) -> dict[str, str]:
    """What is wrong with each field, in words; the first problem of each."""
    found: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else ""
        saying = pages.SAYINGS.get(problem["type"]) or pages.FORMS.get(name, "Invalid value.")
        found.setdefault(name, saying.format(**problem.get("ctx", {})))
    return found


def number(text: str) -> int | str:
    """A whole number from a form; anything else stays text, for the model to refuse in words."""
    return int(text) if _NUMBER.fullmatch(text) else text


def identifier(text: str | None) -> UUID | None:
    """An id from an address; anything else is none."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
