"""What the doctor finds at a service and on a page, each with a planted fault."""

import time
import urllib.request
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
import pytest

import log_scan
from factories import Live, Site, make_settings
from hlas.doctor import checks, probes, website
from hlas.doctor.finding import Finding
from hlas.doctor.website import Service
from hlas.outbound.fetch import Fetched
from hlas.store.db import Database
from hlas.store.logins import Logins
from hlas.tenants import tenants
from web_servers import web_server

STRONG = "pQ9vK2mX7rT4wZ8sL1nB6yH3cF5dG0jA+uE/oiNRMVSkW"


def proxy_to(upstream: str, *, forwarded: str | None = None, **added: str) -> Any:
    """A reverse proxy that forwards the client's address, or does not."""

    def answer(handler: BaseHTTPRequestHandler) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = dict(handler.headers.items())
        if forwarded:
            headers["X-Forwarded-For"] = forwarded
        request = urllib.request.Request(
            upstream + handler.path, headers=headers, method=handler.command
        )
        with urllib.request.urlopen(request) as response:
            kept = [
                (name, value)
                for name, value in response.headers.items()
                if name.lower() not in {"content-length", "connection"}
            ]
            return response.status, [*kept, *added.items()], response.read()

    return answer


def service_of(live: Live, url: str | None = None) -> Service:
    return Service(url or live.url, log_scan.SECRET)


async def address(live: Live, url: str | None = None) -> Finding:
    settings = live.app.state.services.settings
    return await checks.check_address(settings, service_of(live, url))


async def test_address(live_server: Live) -> None:
    """Edge case 25: the limited address is shown; a proxy that is not trusted is found."""
    direct = await address(live_server)
    assert (direct.status, direct.found) == ("ok", "a request from here is limited as 127.0.0.1")
    with web_server(proxy_to(live_server.url, forwarded="203.0.113.9")) as proxy:
        found = await address(live_server, proxy)
    assert found.status == "fail"
    assert "TRUSTED_PROXIES=127.0.0.1" in found.fix
    with web_server(proxy_to(live_server.url, Server="nginx")) as proxy:
        silent = await address(live_server, proxy)
    assert silent.status == "fail"
    assert "X-Forwarded-For" in silent.fix


@pytest.mark.settings(trusted_proxies="127.0.0.0/8")
async def test_address_behind_a_trusted_proxy(live_server: Live) -> None:
    """Edge case 25: behind a trusted proxy the visitor's own address counts."""
    with web_server(proxy_to(live_server.url, forwarded="203.0.113.9", Server="nginx")) as proxy:
        found = await address(live_server, proxy)
    assert (found.status, found.found) == ("ok", "a request from here is limited as 203.0.113.9")


async def test_everyone_is_trusted(database_url: str) -> None:
    """TRUSTED_PROXIES that includes everyone is found."""
    wide = make_settings(database_url, trusted_proxies="0.0.0.0/0,::/0")
    assert (await checks.check_address(wide, None)).status == "fail"
    fair = make_settings(database_url, trusted_proxies="10.0.0.0/8,fd00::/8")
    assert (await checks.check_address(fair, None)).status == "skip"


async def test_another_service(live_server: Live) -> None:
    """No service, another service, and a Hlas with another secret are found."""
    stranger = Service(live_server.url, STRONG)
    assert (await website.check_address(stranger)).status == "warn"
    assert (await website.check_address(Service("http://127.0.0.1:1", STRONG))).status == "fail"
    assert (await website.check_address(Service("chat.example", STRONG))).status == "fail"
    with web_server(lambda _: (200, [], b"<html>")) as other:
        assert (await website.check_address(Service(other, STRONG))).status == "fail"


async def test_details_only_for_the_doctor(site: Site) -> None:
    """Without our secret, with a visitor's token or an old probe, /health returns no details."""
    client = site.live.client
    plain = b'{"status":"ok"}'
    old = jwt.encode(
        {"aud": probes.AUDIENCE, "exp": int(time.time()) - 300}, log_scan.SECRET, "HS256"
    )
    none = jwt.encode({"aud": probes.AUDIENCE, "exp": 2**40}, "", "none")
    endless = jwt.encode({"aud": probes.AUDIENCE}, log_scan.SECRET, "HS256")
    for token in (site.session["token"], probes.issue(STRONG), old, none, endless, "x"):
        answer = await client.get("/health", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.content) == (200, plain)
    assert (await client.get("/health")).content == plain
    good = {"Authorization": f"Bearer {probes.issue(log_scan.SECRET)}"}
    assert "seen" in (await client.get("/health", headers=good)).json()
    denied = await client.get("/widget/whoami", headers=good)
    assert denied.status_code == 401


async def test_allowlist(site: Site, operators: Database, database_url: str) -> None:
    """A page whose origin no tenant allows, or whose tenant is disabled, is found."""
    good = await checks.check_allowlist(Logins(database_url), f"{site.origin}/basket?x=1")
    assert good.status == "ok"
    other = await checks.check_allowlist(Logins(database_url), "https://www.shop.example/")
    assert other.status == "fail"
    assert other.fix == "hlas domain add SLUG https://www.shop.example"
    await tenants.set_active(operators, site.slug, active=False)
    disabled = await checks.check_allowlist(Logins(database_url), site.origin)
    assert disabled.fix == f"hlas tenant enable {site.slug}"
    assert (await checks.check_allowlist(Logins(database_url), "shop.example")).status == "fail"


def page_of(service: str, policy: str = "", meta: str = "") -> Any:
    tag = f'<script type="module" src="{service}/widget.js"></script>'
    head = f'<meta http-equiv="Content-Security-Policy" content="{meta}">' if meta else ""
    body = f"<!doctype html><html><head>{head}{tag}</head></html>".encode()
    headers = [("Content-Security-Policy", policy)] if policy else []
    return lambda _: (200, headers, body)


async def test_page(live_server: Live) -> None:
    """Policies that block the script or its requests are found, in headers and in the page."""
    service, url = service_of(live_server), live_server.url
    for policy, meta, blocked in (
        ("", "", None),
        (f"script-src {url}; connect-src {url}", "", None),
        ("script-src 'self'", "", "script-src"),
        (f"default-src 'self'; script-src {url}", "", "default-src"),
        ("", "connect-src 'self'", "connect-src"),
    ):
        with web_server(page_of(url, policy, meta)) as page:
            found = await website.check_page(service, f"{page}/shop")
        assert found.status == ("fail" if blocked else "ok"), (policy, meta, found)
        if blocked:
            assert blocked in found.found
            assert found.fix == f"add {url} to its {blocked}"


async def test_page_without_the_widget(live_server: Live) -> None:
    """A missing script tag, a missing page, and an https page with an http script are found."""
    service = service_of(live_server)
    with web_server(lambda _: (200, [], b"<html></html>")) as page:
        assert "no script tag" in (await website.check_page(service, page)).found
        assert (await website.check_page(None, page)).status == "warn"
    assert (await website.check_page(service, "http://127.0.0.1:1/")).status == "warn"


async def test_mixed_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """An http script on an https page is found; the page is faked, for lack of a certificate."""
    body = b'<script src="http://chat.example/widget.js"></script>'

    async def fetch(url: str, **_: Any) -> Fetched:
        return Fetched(url, 200, Message(), body)

    monkeypatch.setattr(website, "fetch", fetch)
    found = await website.check_page(None, "https://shop.example/")
    assert (found.status, "https and the script http" in found.found) == ("fail", True)


async def test_cors(site: Site) -> None:
    """Edge case 30: a proxy that breaks preflights is found."""
    origin = website.origin_of(site.origin)
    stranger = website.origin_of("https://stranger.example")
    assert origin is not None
    assert stranger is not None
    service = service_of(site.live)
    assert (await website.check_cors(service, origin)).status == "ok"
    assert (await website.check_cors(service, stranger)).status == "fail"
    star = {"Access-Control-Allow-Origin": "*"}
    with web_server(proxy_to(site.live.url, **star)) as proxy:
        doubled = await website.check_cors(service_of(site.live, proxy), origin)
    assert (doubled.status, "two Access" in doubled.found) == ("fail", True)
    with web_server(lambda _: (405, [], b"")) as proxy:
        swallowed = await website.check_cors(service_of(site.live, proxy), origin)
    assert swallowed.status == "fail"
    nobody = Service("http://127.0.0.1:1", STRONG)
    assert (await website.check_cors(nobody, origin)).status == "fail"
