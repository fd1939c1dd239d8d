"""Answers to what is no request that the application could hear of."""

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hlas import errors
from hlas.asgi import Headers
from hlas.headers import security_headers


class InvalidHttp(errors.HlasError):
    """This is not a valid HTTP request."""

    status = 400
    code = "invalid_http"


class HeadersTooLarge(errors.HlasError):
    """The request's headers are too large."""

    status = 431
    code = "headers_too_large"


def render(refusal: errors.HlasError, request_id: str, common: Headers, *, tls: bool) -> bytes:
    """The whole answer, as the last one on its connection; `common` is on every answer."""
    status, own, body = errors.render(refusal, request_id)
    headers: Headers = (
        *common,
        *own,
        (b"x-request-id", request_id.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"vary", b"Origin"),
        (b"connection", b"close"),
        *security_headers(own_policy=False, tls=tls),
    )
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"%b%b\r\n%b" % (STATUS_LINE[status], b"".join(lines), body)
