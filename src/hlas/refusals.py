"""Answers to requests that are refused before the application sees them."""

import time

import uuid_utils
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hlas import errors, telemetry
from hlas.asgi import Headers
from hlas.headers import security_headers
from hlas.metrics import Metrics


class InvalidHttp(errors.HlasError):
    """This is not a valid HTTP request."""

    status = 400
    code = "invalid_http"


class HeadersTooLarge(errors.HlasError):
    """The request's headers are too large."""

    status = 431
    code = "headers_too_large"


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
