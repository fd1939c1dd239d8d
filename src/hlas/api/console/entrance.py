"""Signing in and out, the preview, and the files of all pages."""

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request, Response

from hlas import errors, log
from hlas.api.admin.access import require_room
from hlas.api.assets import READ, REVALIDATE, answer
from hlas.api.console import cookies, pages
from hlas.api.console.access import (
    CONSOLE,
    SIGN_IN,
    ConsoleRoute,
    go,
    read_form,
    require_own_page,
    require_signed_in,
)
from hlas.api.reads import LIMITED
from hlas.http.asgi import REQUEST
from hlas.http.gate import ADMIN
from hlas.http.headers import page_headers
from hlas.operators import administrators, sign_ins
from hlas.services import Services
from hlas.web import assets
from hlas.web.assets import Asset

router = APIRouter(route_class=ConsoleRoute, dependencies=LIMITED)

# How long a sign-in form is valid after it was loaded.
FORM_SECONDS = 3600
FILES = (
    "console.css",
    "console.js",
    "icon.svg",
    "import.js",
    "list.js",
    "preview.js",
    "products.js",
    "reply.js",
    "stream.js",
    "times.js",
    "transcript.js",
    "trial.js",
)
# Modules of the widget that the console imports, at the same relative addresses as their files.
SHARED_FILES = ("dom.js", "markdown.js", "sources.js")
# The preview runs the real widget in a sandboxed frame: another origin, without network and
# without access to the console.
PREVIEW_POLICY = page_headers(
    connect_src="'none'",
    form_action="'none'",
    frame_ancestors="'self'",
    sandbox="allow-scripts",
)


@router.get(SIGN_IN)
async def sign_in_page(request: Request) -> Response:
    return _sign_in_page(request)


def _sign_in_page(request: Request, status: int = 200, problem: str | None = None) -> Response:
    # One secret for all tabs of a browser, so that the form in each of them is valid.
    known = cookies.read(request, cookies.FORM)
    secret = known if sign_ins.is_secret(known) else sign_ins.new_secret()
    shown = pages.page(
        "sign-in.html",
        status,
        form_token=sign_ins.form_token(secret),
        next=_own(request.query_params.get("next", "")),
        done=pages.DONE.get(request.query_params.get("done", "")),
        problem=problem,
    )
    cookies.write(request, shown, cookies.FORM, secret, FORM_SECONDS)
    return shown


@router.post(SIGN_IN)
async def sign_in(request: Request) -> Response:
    services: Services = request.app.state.services
    require_own_page(request)
    try:
        form = await read_form(request, cookies.read(request, cookies.FORM))
    except errors.FormRefused as error:
        request.app.state.finish.report(request.scope[REQUEST], error)
        return _sign_in_page(request, error.status, "This form has expired. Please try again.")
    key = form.get("key", "").strip()
    await require_room(request, key)
    try:
        administrator = await administrators.verify(services.operators, key)
    except errors.InvalidAdminKey as error:
        await services.gate.consume(request.scope[REQUEST], ADMIN)
        request.app.state.finish.report(request.scope[REQUEST], error)
        return _sign_in_page(request, error.status, "This key is unknown or was revoked.")
    log.bind(administrator_id=administrator.id)
    await services.gate.consume_key(administrator.id)
    secret = await sign_ins.begin(services.operators, administrator)
    log.info("console_signed_in")
    gone = go(_own(request.query_params.get("next", "")))
    cookies.write(request, gone, cookies.SESSION, secret, sign_ins.SECONDS)
    return gone


@router.post("/console/sign-out")
async def sign_out(request: Request) -> Response:
    visit = await require_signed_in(request)
    services: Services = request.app.state.services
    await sign_ins.end(services.operators, visit.secret)
    log.info("console_signed_out")
    gone = go(SIGN_IN, "bye")
    cookies.write(request, gone, cookies.SESSION, "", 0)
    return gone


def _own(path: str) -> str:
    """The path if it is a page of the console, or the console's first page."""
    plain = path.isascii() and path.isprintable() and not set(path) & set("\\?#")
    return (
        path if plain and (path + "/").startswith(CONSOLE + "/") and "//" not in path else CONSOLE
    )


@router.get("/console/preview")
async def preview() -> Response:
    """The frame that previews looks; it is the same for everybody, so it needs no sign-in."""
    html = pages.environment().get_template("preview.html").render()
    return Response(
        html, headers={"Cache-Control": REVALIDATE, **PREVIEW_POLICY}, media_type="text/html"
    )


def _serve(asset: Callable[[], Asset]) -> Callable[[Request], Response]:
    def serve(request: Request) -> Response:
        return answer(request, asset(), REVALIDATE, {})

    return serve


for _name in FILES:
    router.api_route(f"/console/{_name}", methods=READ)(_serve(partial(assets.console, _name)))
for _name in SHARED_FILES:
    router.api_route(f"/widget/{_name}", methods=READ)(_serve(partial(assets.widget_module, _name)))
