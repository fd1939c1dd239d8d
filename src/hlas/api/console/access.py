"""Authentication at the console, and what all its pages share."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated
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
from hlas.http import body, multipart
from hlas.http.asgi import REQUEST
from hlas.http.gate import ADMIN
from hlas.http.multipart import File
from hlas.knowledge import unanswered
from hlas.operators import sign_ins
from hlas.services import Services
from hlas.tenants import tenants
from hlas.tenants.tenants import SLUG, Tenant
from hlas.visitors.origins import Origin

CONSOLE = "/console"
SIGN_IN = "/console/sign-in"
MOST_FIELDS = 100
# The preview of an import has a field for each entry.
MOST_FIELDS_OF_UPLOADS = 1_000
# The navigation shows one more than 99 as "99+".
MOST_COUNTED = 100
# No field takes more digits, and `int` raises on thousands of them.
_NUMBER = re.compile(r"[0-9]{1,18}")

Form = dict[str, str]


class SignInNeeded(Exception):
    """Nobody is signed in; signing in leads back to the page that was asked for."""


@dataclass(frozen=True, slots=True)
class Visit(Access):
    """An administrator at the console."""

    request: Request

    def page(
        self,
        template: str,
        status: int = 200,
        *,
        policy: dict[str, str] | None = None,
        **values: object,
    ) -> Response:
        """A page for this administrator; `policy` overrides parts of its content policy."""
        return pages.page(template, status, policy=policy, **self._complete(values))

    def render(self, template: str, **values: object) -> str:
        """A page or a part of one, as text."""
        return pages.render(template, **self._complete(values))

    def _complete(self, values: dict[str, object]) -> dict[str, object]:
        """Add what all pages show."""
        return dict(
            me=self.administrator,
            form_token=sign_ins.form_token(self.secret),
            path=self.request.url.path,
            done=pages.DONE.get(self.request.query_params.get("done", "")),
            open_questions=getattr(self.request.state, "open_questions", 0),
            **values,
        )


class ConsoleRoute(APIRoute):
    """Answers with pages, also to refusals and when nobody is signed in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()

        async def handle_with_pages(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                wanted = request.url.path if request.method == "GET" else CONSOLE
                return go(f"{SIGN_IN}?next={quote(wanted)}")
            except errors.HlasError as error:
                if is_from_script(request):
                    raise
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

        return handle_with_pages


def is_from_script(request: Request) -> bool:
    """Whether a page's script sends a form, and reads the answer itself."""
    return request.headers.get("accept") == "application/json"


def go(path: str, done: str = "") -> Response:
    """Redirect with GET; `done` names what that page reports as done."""
    return RedirectResponse(f"{path}?done={done}" if done else path, 303)


def require_own_page(request: Request) -> None:
    """Refuse a form that does not come from a page of the console, as the browser reports it."""
    sites = request.scope[REQUEST].values(b"sec-fetch-site")
    origins = request.scope[REQUEST].values(b"origin")
    hosts = request.scope[REQUEST].values(b"host")
    if set(sites) - {"same-origin"} or not all(_is_own(origin, hosts) for origin in origins):
        raise errors.FormRefused


def _is_own(text: str, hosts: Sequence[str]) -> bool:
    """Whether an Origin belongs to the requested Host."""
    origin = Origin.parse(text)
    if origin is None or len(hosts) != 1:
        return False
    # The scheme is the browser's: a proxy may terminate TLS without passing that on.
    own = Origin.parse(f"{origin.scheme}://{hosts[0]}")
    # Proxies may omit the port from Host (nginx: `$host`).
    return own == origin or (own is not None and hosts[0].lower() == own.host == origin.host)


async def read_form(request: Request, secret: str) -> Form:
    """The fields of a form; its token must belong to this secret."""
    form, _ = await _read_form(request, secret)
    return form


async def _read_form(request: Request, secret: str) -> tuple[Form, list[File]]:
    """Its fields and its files."""
    sent = request.scope[REQUEST]
    most = MOST_FIELDS_OF_UPLOADS if body.UPLOADS.fullmatch(sent.path) else MOST_FIELDS
    files: list[File] = []
    try:
        data = await sent.read()
        if body.has_files(sent):
            fields, files = multipart.parse(data, sent.values(b"content-type")[0], most)
        else:
            fields = parse_qsl(
                data.decode(), keep_blank_values=True, max_num_fields=most, errors="strict"
            )
    except ValueError:
        raise errors.InvalidRequest.at("body", kind="form_invalid") from None
    form = {name: value.replace("\r\n", "\n") for name, value in fields}
    if not sign_ins.is_form_token(secret, form.pop("form_token", "")):
        raise errors.FormRefused
    return form, files


async def require_signed_in(request: Request) -> Visit:
    """Require a sign-in and, for a change, a form of the console. Every page depends on this."""
    services: Services = request.app.state.services
    secret = cookies.read(request, cookies.SESSION)
    if not secret:
        raise SignInNeeded
    await require_room(request, secret)
    try:
        administrator = await sign_ins.find_administrator(services.operators, secret)
    except errors.InvalidAdminKey:
        await services.gate.consume(request.scope[REQUEST], ADMIN)
        raise SignInNeeded from None
    log.bind(administrator_id=administrator.id)
    await services.gate.consume_key(administrator.id)
    if request.method != "GET":
        require_own_page(request)
        with services.uploads.admit(request.scope[REQUEST], administrator.id):
            request.state.form, request.state.files = await _read_form(request, secret)
    return Visit(administrator, reach(services, administrator), secret, request)


Signed = Annotated[Visit, Depends(require_signed_in)]


async def get_form(_: Signed, request: Request) -> Form:
    form: Form = request.state.form
    return form


async def get_files(_: Signed, request: Request) -> list[File]:
    files: list[File] = request.state.files
    return files


async def require_tenant(visit: Signed, slug: Annotated[str, Path(pattern=SLUG)]) -> Tenant:
    tenant = await tenants.find_tenant(visit.database, slug)
    log.bind(tenant_id=str(tenant.id))
    visit.request.state.open_questions = await unanswered.count_open(
        visit.database, tenant.id, MOST_COUNTED
    )
    return tenant


async def find_chosen_tenant(visit: Visit, slug: str) -> Tenant | None:
    """The tenant a list is filtered by; an unknown one is refused, so that it shows nothing."""
    if not slug:
        return None
    if not re.fullmatch(SLUG, slug):
        raise errors.NotFound
    return await tenants.find_tenant(visit.database, slug)


async def require_operator(visit: Signed) -> Visit:
    visit.require_operator()
    return visit


Sent = Annotated[Form, Depends(get_form)]
SentFiles = Annotated[list[File], Depends(get_files)]
PathTenant = Annotated[Tenant, Depends(require_tenant)]
Operator = Annotated[Visit, Depends(require_operator)]

router = APIRouter(
    prefix=CONSOLE, dependencies=[Depends(require_signed_in)], route_class=ConsoleRoute
)


async def attempt(work: Awaitable[object]) -> str | None:
    """Try a change and return the message of an error that the user can fix; raise others."""
    try:
        await work
    except errors.HlasError as error:
        if error.status >= 500 or error.status in {401, 403}:
            raise
        return error.message
    return None


def explain(error: ValidationError) -> dict[str, str]:
    """A message for each invalid field, about its first problem; fields of a field have a dot."""
    found: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        name = ".".join(part for part in problem["loc"] if isinstance(part, str))
        message = pages.MESSAGES.get(problem["type"]) or pages.FORMS.get(name, "Invalid value.")
        found.setdefault(name, message.format(**problem.get("ctx", {})))
    return found


def parse_number(text: str) -> int | str:
    """A whole number from a form; other text is returned as it is, for the model to refuse."""
    return int(text) if _NUMBER.fullmatch(text) else text


def parse_id(text: str | None) -> UUID | None:
    """An id from an address; None if it is not one."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
