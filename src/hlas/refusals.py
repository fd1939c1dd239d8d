"""Answers to requests that are refused before the application sees them."""

import re
import time

import uuid_utils
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hlas import errors, telemetry
from hlas.asgi import Headers
from hlas.headers import security_headers
from hlas.metrics import Metrics

# More digits are no length, and Python itself refuses to read thousands of them.
_LENGTH = re.compile(rb"[0-9]{1,19}[ \t]*")
_VERSIONS = frozenset({"1.0", "1.1"})


class InvalidHttp(errors.HlasError):
    """This is not a valid HTTP request."""

    status = 400
    code = "invalid_http"


class HeadersTooLarge(errors.HlasError):
    """The request's headers are too large."""

    status = 431
    code = "headers_too_large"


def is_ambiguous(url: bytes, headers: Headers, version: str) -> bool:
    """A proxy before us may have read the target, the host or the body in another way."""
    hosts = codings = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length" and not _LENGTH.fullmatch(value):
            return True
        elif name == b"transfer-encoding":
            codings += 1
            if value.strip(b" \t").lower() != b"chunked":
                return True
    # Load balancers check health by HTTP/1.0, which knows no Host.
    is_host_clear = hosts == 1 or (hosts == 0 and version == "1.0")
    return not is_host_clear or codings > 1 or version not in _VERSIONS or b"#" in url


def answer(
    refusal: errors.HlasError, common: Headers, metrics: Metrics | None, *, tls: bool
) -> bytes:
    """The whole answer, the last one on its connection; with `metrics` it is logged and counted.

    `common` are the headers of every answer.
    """
    request_id = str(uuid_utils.uuid7())
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
    if metrics is not None:
        entered = telemetry.enter({"request_id": request_id})
        telemetry.account(metrics, "OTHER", telemetry.UNMATCHED, status, time.perf_counter())
        telemetry.leave(entered)
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"%b%b\r\n%b" % (STATUS_LINE[status], b"".join(lines), body)
