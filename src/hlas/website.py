"""The service and a page with the widget, seen from outside as a visitor's browser sees them."""

import asyncio
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import orjson

from hlas import content_policy, probes
from hlas.content_policy import Wanted
from hlas.finding import Finding
from hlas.origins import Origin

SECONDS = 10.0
LARGEST_PAGE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Service:
    """Where visitors reach Hlas, and the secret that proves to it that its doctor asks."""

    url: str
    secret: str

    def at(self, path: str) -> str:
        return self.url.rstrip("/") + path


@dataclass(frozen=True, slots=True)
class Fetched:
    url: str
    status: int
    headers: Message
    body: bytes


class _Unreachable(Exception):
    """The address does not answer; the message says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token goes to the address it is meant for and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


async def fetch(url: str, *, method: str = "GET", follow: bool = False, **headers: str) -> Fetched:
    return await asyncio.to_thread(_fetch, url, method, headers, follow=follow)


def _fetch(url: str, method: str, headers: dict[str, str], *, follow: bool) -> Fetched:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    handlers = () if follow else (_NoRedirect(),)
    try:
        request = urllib.request.Request(  # noqa: S310  # only http and https pass origin_of
            url, method=method, headers={"User-Agent": "hlas-doctor", **named}
        )
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request, timeout=SECONDS) as answer:
            return Fetched(answer.url, answer.status, answer.headers, answer.read(LARGEST_PAGE))
    except urllib.error.HTTPError as error:
        with error:
            return Fetched(url, error.code, error.headers, b"")
    except (OSError, ValueError) as error:
        raise _Unreachable(str(getattr(error, "reason", error))) from None


def origin_of(url: str) -> Origin | None:
    return Origin.of_url(url)


async def check_address(service: Service) -> Finding:
    """As whom the service would limit us; it tells nobody but those who know its secret."""
    if origin_of(service.url) is None:
        return Finding("address", "fail", f"{service.url} is no address", "write https://…")
    token = probes.issue(service.secret)
    try:
        answer = await fetch(service.at("/health"), Authorization=f"Bearer {token}")
        seen = orjson.loads(answer.body).get("seen")
    except (_Unreachable, orjson.JSONDecodeError) as error:
        mend = "start it, and check the address, the proxy in front of it and its certificate"
        return Finding("address", "fail", f"{service.url} does not answer as Hlas: {error}", mend)
    if seen is None:
        return Finding(
            "address",
            "warn",
            f"{service.url} is another Hlas, or signs with another secret",
            "run the doctor with the environment of the service",
        )
    return _judge_address(seen, answer.headers)


def _judge_address(seen: dict[str, Any], headers: Message) -> Finding:
    if seen["address"] is None:
        return Finding(
            "address",
            "fail",
            "requests come without an address (a unix socket): limits by address do not apply",
            "let the proxy connect over TCP, or rely on the other limits",
        )
    if seen["forwarded_for"] and not seen["trusted"]:
        return Finding(
            "address",
            "fail",
            f"a proxy at {seen['peer']} is not trusted, so all its visitors are limited as one",
            f"set TRUSTED_PROXIES={seen['peer']}, or its network",
        )
    proxy = headers.get("Via") or headers.get("Server")
    if proxy and not seen["forwarded_for"]:
        return Finding(
            "address",
            "fail",
            f"a proxy ({proxy[:40]}) does not say for whom it asks, so all visitors are limited "
            "as one",
            "let it set X-Forwarded-For; ops/ has samples",
        )
    return Finding("address", "ok", f"a request from here is limited as {seen['address']}")


class _Page(HTMLParser):
    """Scripts and policies of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str]] = []
        self.policies: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "script" and values.get("src"):
            self.scripts.append(values)
        named = values.get("http-equiv", "").lower()
        if tag == "meta" and named == "content-security-policy":
            self.policies.append(values.get("content", ""))


async def examine(service: Service | None, page: str | None) -> list[Finding]:
    """What a browser on that page would let the widget do."""
    origin = origin_of(page) if page else None
    if page is None or origin is None:
        return [
            Finding("page", "skip", "no page was named with --page"),
            Finding("cors", "skip", "no page was named with --page"),
        ]
    cors = (
        await check_cors(service, origin)
        if service
        else Finding("cors", "skip", "the service's address was not named with --url")
    )
    return [await check_page(service, page), cors]


async def check_page(service: Service | None, page: str) -> Finding:
    try:
        fetched = await fetch(page, follow=True)
    except _Unreachable as error:
        return Finding("page", "warn", f"{page} cannot be read from here: {error}", "open it")
    origin = origin_of(fetched.url)
    parsed = _Page(fetched.body.decode("utf-8", "replace"))
    script = next((one for one in parsed.scripts if _is_widget(one["src"], fetched.url)), None)
    if script is None and service is None:
        return _no_script(page)
    source = urljoin(fetched.url, script["src"]) if script else service.at("/widget.js")  # type: ignore[union-attr]  # checked above
    target = Origin.of_url(source)
    if origin is None or target is None:
        return Finding("page", "fail", f"{source} is no address", "write https://…/widget.js")
    if origin.scheme == "https" and target.scheme == "http":
        return Finding(
            "page",
            "fail",
            "the page is https and the script http: browsers refuse that",
            "serve Hlas over TLS; ops/ has samples for nginx and Caddy",
        )
    headers = fetched.headers.get_all("Content-Security-Policy") or []
    policies = [one for header in headers for one in content_policy.split(header)]
    blocked = _blocked([*policies, *parsed.policies], source, script or {}, origin, target)
    if blocked:
        mend = f"add {target} to its {blocked}"
        return Finding("page", "fail", f"its Content-Security-Policy ({blocked}) blocks us", mend)
    return Finding("page", "ok", f"it may load and use {target}") if script else _no_script(page)


def _no_script(page: str) -> Finding:
    return Finding(
        "page",
        "warn",
        f"{page} has no script tag for widget.js, unless another script adds it",
        '<script type="module" src="https://…/widget.js"></script>',
    )


def _is_widget(source: str, page: str) -> bool:
    return urljoin(page, source).partition("?")[0].endswith("/widget.js")


def _blocked(
    policies: list[str], source: str, script: dict[str, str], page: Origin, target: Origin
) -> str | None:
    tag = Wanted(source, page, script.get("nonce", ""), script.get("integrity", ""))
    api = Wanted(f"{target}/widget/session", page)
    return content_policy.blocking(policies, content_policy.SCRIPT, tag) or content_policy.blocking(
        policies, content_policy.CONNECT, api
    )


async def check_cors(service: Service, origin: Origin) -> Finding:
    """The question that a browser asks before it sends a message."""
    try:
        answer = await fetch(
            service.at("/widget/messages"),
            method="OPTIONS",
            Origin=str(origin),
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization,content-type,idempotency-key",
        )
    except _Unreachable as error:
        return Finding("cors", "fail", f"{service.url} does not answer: {error}", "start it")
    allowed = answer.headers.get_all("Access-Control-Allow-Origin") or []
    if len(allowed) > 1:
        return Finding(
            "cors",
            "fail",
            "two Access-Control-Allow-Origin headers: browsers refuse the answer",
            "remove the CORS headers that the proxy adds",
        )
    if allowed != [str(origin)]:
        return Finding(
            "cors",
            "fail",
            f"a browser on {origin} may not send messages (status {answer.status})",
            f"hlas domain add SLUG {origin}; if it is there, let the proxy pass OPTIONS on",
        )
    return Finding("cors", "ok", f"a browser on {origin} may send messages")
