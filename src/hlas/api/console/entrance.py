"""The way in and out, and the files every page needs."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from hlas import errors, signins, telemetry
from hlas.api.assets import READ, REVALIDATE, answer
from hlas.api.console import pages
from hlas.api.console.access import (
    CONSOLE,
    COOKIE,
    SIGN_IN,
    ConsoleRoute,
    go,
    read_form,
    require_signed_in,
)
from hlas.api.reads import LIMITED
from hlas.gate import ADMIN
from hlas.headers import page_headers
from hlas.services import Services
from hlas.web import assets

router = APIRouter(route_class=ConsoleRoute, dependencies=LIMITED)

# Before there is a sign-in, a secret of its own ties the form to the browser that loaded it.
FORM_COOKIE = "hlas_console_form"
FORM_SECONDS = 3600
FILES = ("console.css", "console.js", "preview.js", "icon.svg")
# The preview runs the real widget, in a frame that is no part of the console: another origin,
# no network, no way to the page around it.
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
    secret = signins.new_secret()
    shown = pages.page(
        "sign-in.html",
        status,
        form_token=signins.form_token(secret),
        next=_own(request.query_params.get("next", "")),
        done=pages.DONE.get(request.query_params.get("done", "")),
        problem=problem,
    )
    _set_cookie(request, shown, FORM_COOKIE, secret, FORM_SECONDS)
    return shown


@router.post(SIGN_IN)
async def sign_in(request: Request) -> Response:
    services: Services = request.app.state.services
    await services.gate.require_room(request.scope, ADMIN)
    try:
        form = await read_form(request, request.cookies.get(FORM_COOKIE, ""))
    except errors.FormRefused as error:
        return _sign_in_page(request, error.status, "The page was too old. Please try again.")
    try:
        administrator, secret = await signins.begin(services.operators, form.get("key", "").strip())
    except errors.InvalidAdminKey as error:
        await services.gate.admit(request.scope, ADMIN)
        telemetry.warning("auth_denied", reason=error.code, route=SIGN_IN)
        services.metrics.auth_denied(error.code)
        return _sign_in_page(request, error.status, "This key is unknown or was revoked.")
    telemetry.bind(administrator_id=administrator.id)
    telemetry.info("console_signed_in")
    gone = go(_own(request.query_params.get("next", "")))
    _set_cookie(request, gone, COOKIE, secret, signins.SECONDS)
    gone.delete_cookie(FORM_COOKIE, path=CONSOLE)
    return gone


@router.post("/console/sign-out")
async def sign_out(request: Request) -> Response:
    visit = await require_signed_in(request)
    services: Services = request.app.state.services
    await signins.end(services.operators, visit.secret)
    telemetry.info("console_signed_out")
    gone = go(SIGN_IN, "bye")
    gone.delete_cookie(COOKIE, path=CONSOLE)
    return gone


def _own(path: str) -> str:
    """A page of the console, whatever an address asks for."""
    plain = path.isascii() and path.isprintable() and not set(path) & set("\\?#")
    return (
        path if plain and (path + "/").startswith(CONSOLE + "/") and "//" not in path else CONSOLE
    )


def _set_cookie(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
    services: Services = request.app.state.services
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=CONSOLE,
        httponly=True,
        samesite="strict",
        secure=telemetry.is_tls(request.scope, services.settings.trusted_proxies),
    )


@router.get("/console/preview")
async def preview() -> Response:
    """The frame in which looks are tried on; the same for everybody, so it needs no sign-in."""
    html = pages.environment().get_template("preview.html").render()
    return Response(
        html, headers={"Cache-Control": REVALIDATE, **PREVIEW_POLICY}, media_type="text/html"
    )


def _serve(name: str) -> Callable[[Request], Response]:
    def serve(request: Request) -> Response:
        return answer(request, assets.console(name), REVALIDATE, {})

    return serve


for _name in FILES:
    router.api_route(f"/console/{_name}", methods=READ)(_serve(_name))
