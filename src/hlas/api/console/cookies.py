"""The console's cookies: HttpOnly, SameSite=Strict and short-lived."""

from fastapi import Request, Response

from hlas.http.answer import Finish
from hlas.http.asgi import REQUEST

# The sign-in, and the browser that loaded the sign-in form.
SESSION = "hlas_console"
FORM = "hlas_console_form"


def read(request: Request, name: str) -> str:
    """The value of a cookie that came once and under exactly this name, or nothing.

    A host beside ours can plant a name that parsers trim to ours, as one with a no-break space.
    """
    start = f"{_full_name(request, name)}="
    pairs = ";".join(request.scope[REQUEST].values(b"cookie")).split(";")
    values = [pair.strip(" ") for pair in pairs if pair.strip(" ").startswith(start)]
    return values[0].removeprefix(start) if len(values) == 1 else ""


def write(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie; 0 seconds deletes it."""
    tls = _is_tls(request)
    response.set_cookie(
        _full_name(request, name),
        value,
        max_age=seconds,
        path="/" if tls else "/console",
        httponly=True,
        samesite="strict",
        secure=tls,
    )


def _full_name(request: Request, name: str) -> str:
    """Over TLS, `__Host-` keeps other hosts of the domain from setting the cookie."""
    return f"__Host-{name}" if _is_tls(request) else name


def _is_tls(request: Request) -> bool:
    finish: Finish = request.app.state.finish
    return finish.is_tls(request.scope[REQUEST])
