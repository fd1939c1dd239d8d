"""The service and a page with the widget, seen from outside as a visitor's browser sees them.

What they answer is untrusted.
"""

from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from html.parser import HTMLParser
from urllib.parse import urljoin

from pydantic import BaseModel, ValidationError

from hlas.doctor import content_policy, probes
from hlas.doctor.content_policy import Wanted
from hlas.doctor.finding import Finding
from hlas.outbound.destinations import Destination
from hlas.outbound.fetch import Fetched, Unreachable, fetch
from hlas.visitors.origins import Origin

# Characters of a page's own text that a finding quotes.
SHOWN = 200


@dataclass(frozen=True, slots=True)
class Service:
    """Where visitors reach Hlas, and the secret that signs the doctor's requests."""

    url: str
    secret: str

    def at(self, path: str) -> str:
        return self.url.rstrip("/") + path


class Seen(BaseModel):
    """How the service sees the doctor's request."""

    peer: str | None
    forwarded_for: list[str]
    trusted: bool
    address: str | None


class Task(BaseModel):
    """A background task of the worker that answered."""

    is_running: bool
    failures: int


class Health(BaseModel):
    """What the service reports to the doctor, and to nobody else."""

    seen: Seen | None = None
    background: dict[str, Task] | None = None


def origin_of(url: str) -> Origin | None:
    destination = Destination.parse(url)
    return destination.origin if destination else None


async def check_address(service: Service) -> Finding:
    """Check which address the service would limit our requests by."""
    asked = await _ask("address", service)
    if isinstance(asked, Finding):
        return asked
    health, headers = asked
    if health.seen is None:
        return Finding(
            "address",
            "warn",
            f"{service.url} is another Hlas, or signs with another secret",
            "run the doctor with the environment of the service",
        )
    return _judge_address(health.seen, headers)


async def check_background(service: Service) -> Finding:
    asked = await _ask("background", service)
    # `address` says why a service does not answer us; an older version has no such list.
    tasks = None if isinstance(asked, Finding) else asked[0].background
    if tasks is None:
        return Finding("background", "skip", "the service did not report its background tasks")
    failures = [f"{name} {task.failures}" for name, task in tasks.items() if task.failures]
    stopped = [name for name, task in tasks.items() if not task.is_running]
    history = f"; failures since its start: {', '.join(failures)}" if failures else ""
    if stopped:
        found = f"{', '.join(stopped)} failed and will be started again{history}"
        fix = "look for `background_failed` in the log: it names the error and its place"
        return Finding("background", "fail", found, fix)
    return Finding("background", "ok", f"all {len(tasks)} background tasks run{history}")


async def _ask(name: str, service: Service) -> tuple[Health, Message] | Finding:
    """Query the service, which answers only callers that know a signing secret."""
    if origin_of(service.url) is None:
        return Finding(
            name,
            "fail",
            f"{service.url[:SHOWN]} is not an http or https address",
            "write it as https://chat.example.com",
        )
    if not service.secret:
        return Finding(
            name,
            "warn",
            "there is no signing secret here, and the service answers only those who have it",
            "run the doctor with the environment of the service",
        )
    fix = "start it, and check the address, the proxy in front of it and its certificate"
    token = probes.issue(service.secret)
    try:
        answer = await fetch(service.at("/health"), Authorization=f"Bearer {token}")
        return Health.model_validate_json(answer.body), answer.headers
    except Unreachable as error:
        return Finding(name, "fail", f"{service.url} cannot be reached: {error}", fix)
    except ValidationError:
        return Finding(name, "fail", f"{service.url} does not answer as Hlas does", fix)


def _judge_address(seen: Seen, headers: Message) -> Finding:
    if seen.address is None:
        return Finding(
            "address",
            "fail",
            "requests come without an address (a unix socket): limits by address do not apply",
            "let the proxy connect over TCP, or rely on the other limits",
        )
    if seen.forwarded_for and not seen.trusted:
        return Finding(
            "address",
            "fail",
            f"the proxy at {seen.peer} is not trusted, so all visitors share one limit",
            f"set TRUSTED_PROXIES={seen.peer}, or its network",
        )
    proxy = headers.get("Via") or headers.get("Server")
    if proxy and not seen.forwarded_for:
        return Finding(
            "address",
            "fail",
            f"a proxy ({proxy[:40]}) does not pass visitors' addresses on, so all visitors share "
            "one limit",
            "let it set X-Forwarded-For; ops/ has samples",
        )
    return Finding("address", "ok", f"a request from here is limited as {seen.address}")


class _Page(HTMLParser):
    """Scripts and policies of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str]] = []
        self.policies: list[str] = []
        # The parser asserts on some broken declarations; use what it read before them.
        with suppress(AssertionError):
            self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "script" and values.get("src"):
            self.scripts.append(values)
        named = values.get("http-equiv", "").lower()
        if tag == "meta" and named == "content-security-policy":
            self.policies.append(values.get("content", ""))


async def examine(service: Service | None, page: str | None) -> list[Finding]:
    """Check whether a browser on that page lets the widget load and send."""
    if page is None:
        return [
            Finding("page", "skip", "no page was given with --page"),
            Finding("cors", "skip", "no page was given with --page"),
        ]
    origin = origin_of(page)
    if origin is None:
        return [_no_address(page), Finding("cors", "skip", "the page's address is not valid")]
    cors = (
        await check_cors(service, origin)
        if service
        else Finding("cors", "skip", "the service's address was not given with --url")
    )
    return [await check_page(service, page), cors]


async def check_page(service: Service | None, page: str) -> Finding:
    try:
        fetched = await fetch(page, follow=True)
    except Unreachable as error:
        return Finding(
            "page", "warn", f"{page} cannot be read from here: {error}", "open it in a browser"
        )
    if fetched.status >= 400:
        fix = "check the address"
        return Finding("page", "warn", f"{page} answers with status {fetched.status}", fix)
    return _judge_page(service, fetched)


def _judge_page(service: Service | None, fetched: Fetched) -> Finding:
    parsed = _Page(fetched.body.decode("utf-8", "replace"))
    tags = [(_resolve(one["src"], fetched.url), one) for one in parsed.scripts]
    found = next(((url, one) for url, one in tags if _is_widget(url)), None)
    if found is None and service is None:
        return _no_script(fetched.url)
    source, tag = found or (service.at("/widget.js"), {})  # type: ignore[union-attr]  # checked above
    origin, target = origin_of(fetched.url), Origin.of_url(source)
    if origin is None or target is None:
        return _no_address(source)
    if origin.scheme == "https" and target.scheme == "http":
        return Finding(
            "page",
            "fail",
            "the page is https and the script http: browsers refuse that",
            "serve Hlas over TLS; ops/ has samples for nginx and Caddy",
        )
    headers = fetched.headers.get_all("Content-Security-Policy") or []
    policies = [one for header in headers for one in content_policy.split(header)]
    blocked = _find_blocking([*policies, *parsed.policies], source, tag, origin, target)
    if blocked:
        return Finding(
            "page",
            "fail",
            f"the page's Content-Security-Policy ({blocked}) blocks the widget",
            f"add {target} to its {blocked}",
        )
    if found is None:
        return _no_script(fetched.url)
    return Finding("page", "ok", f"the page may load the widget and use {target}")


def _no_address(text: str) -> Finding:
    found = f"{text[:SHOWN]} is not an http or https address"
    return Finding("page", "fail", found, "write it as https://shop.example/")


def _no_script(page: str) -> Finding:
    return Finding(
        "page",
        "warn",
        f"{page} has no script tag for widget.js, unless another script adds it",
        '<script type="module" src="https://…/widget.js"></script>',
    )


def _resolve(source: str, page: str) -> str:
    """A tag's address as the browser resolves it; an invalid one is returned unchanged."""
    try:
        return urljoin(page, source)
    except ValueError:
        return source


def _is_widget(source: str) -> bool:
    return source.partition("?")[0].endswith("/widget.js")


def _find_blocking(
    policies: list[str], source: str, script: dict[str, str], page: Origin, target: Origin
) -> str | None:
    tag = Wanted(source, page, script.get("nonce", ""), script.get("integrity", ""))
    api = Wanted(f"{target}/widget/session", page)
    return content_policy.find_blocking(
        policies, content_policy.SCRIPT, tag
    ) or content_policy.find_blocking(policies, content_policy.CONNECT, api)


async def check_cors(service: Service, origin: Origin) -> Finding:
    """Send the preflight that a browser sends before a message."""
    try:
        answer = await fetch(
            service.at("/widget/messages"),
            method="OPTIONS",
            Origin=str(origin),
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization,content-type,idempotency-key",
        )
    except Unreachable as error:
        return Finding("cors", "fail", f"{service.url} cannot be reached: {error}", "start it")
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
            f"hlas domain add SLUG {origin}; if that is done, let the proxy pass OPTIONS on",
        )
    return Finding("cors", "ok", f"a browser on {origin} may send messages")
