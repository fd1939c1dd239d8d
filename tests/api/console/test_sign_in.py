"""Edge case 53: which sign-in forms are accepted, and that failed attempts lock nobody out."""

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

import log_scan
from administration import make_desk
from browsers import TOKEN, Browser, make_browser
from factories import Live
from hlas.operators import sign_ins
from hlas.store.db import Database

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BAD_KEY = "hlas_" + "a" * 50


async def count_sign_ins(operators: Database) -> int:
    return len(await operators.all("select 1 from signins"))


async def send(
    browser: Browser, key: str, token: str, headers: dict[str, str] | None = None
) -> httpx.Response:
    log_scan.hear(key)
    return await browser.client.post(
        "/console/sign-in",
        content=urlencode({"key": key, "form_token": token}),
        headers={**FORM, **(headers or {})},
    )


async def guess(browser: Browser) -> list[int]:
    """Statuses of an invalid key, an invalid sign-in form and an invalid cookie."""
    address = str(browser.client.base_url)
    async with httpx.AsyncClient(base_url=address, timeout=20) as stranger:
        cookie = {"Cookie": f"hlas_console={sign_ins.new_secret()}"}
        tries = await asyncio.gather(
            stranger.get("/admin/me", headers={"Authorization": f"Bearer {BAD_KEY}"}),
            browser.sign_in(BAD_KEY),
            stranger.get("/console/tenants", headers=cookie),
        )
    return [one.status_code for one in tries]


async def test_the_form_needs_its_cookie(live_server: Live, operators: Database) -> None:
    """Edge case 53: without the cookie, or with an empty or foreign one: 403, no sign-in."""
    desk = await make_desk(live_server, operators)
    mine, other = await make_browser(live_server), await make_browser(live_server)
    await mine.get("/sign-in")
    await other.get("/sign-in")
    foreign = other.client.cookies["hlas_console_form"]
    for cookie, token in (
        (None, sign_ins.form_token("")),
        ("", sign_ins.form_token("")),
        ("x", sign_ins.form_token("x")),
        (None, mine.token),
        (None, ""),
        (foreign, mine.token),
        (foreign, ""),
    ):
        stranger = await make_browser(live_server)
        headers = {} if cookie is None else {"Cookie": f"hlas_console_form={cookie}"}
        answer = await send(stranger, desk.key, token, headers)
        assert answer.status_code == 403, (cookie, token)
        assert "This form has expired. Please try again." in answer.text
        assert "hlas_console" not in answer.cookies
    assert await count_sign_ins(operators) == 0
    assert (await send(mine, desk.key, mine.token)).status_code == 303
    assert await count_sign_ins(operators) == 1


async def test_the_form_is_taken_from_our_own_page(live_server: Live, operators: Database) -> None:
    """Edge case 53: a form from another origin is a 403 `form_refused` page and sets no cookie."""
    desk = await make_desk(live_server, operators)
    browser = await make_browser(live_server)
    await browser.get("/sign-in")
    port = int(live_server.url.rpartition(":")[2])
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Origin": f"http://localhost:{port}"},
        {"Origin": "9" * 5000},
        {"Origin": "https://chat.example", "Host": "chat.example:8443"},
        {"Origin": "https://evil.chat.example", "Host": "chat.example"},
        {"Origin": live_server.url, "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ):
        answer = await send(browser, desk.key, browser.token, headers)
        assert answer.status_code == 403, headers
        assert "The form was not sent from this page" in answer.text
        assert '<a href="/console/sign-in">Sign in again</a>' in answer.text
        assert "set-cookie" not in answer.headers
    assert await count_sign_ins(operators) == 0
    assert live_server.events("refused")[-1]["error_code"] == "form_refused"
    # Also through a proxy that terminates TLS and omits the port in Host.
    for own in (
        {"Origin": live_server.url, "Sec-Fetch-Site": "same-origin"},
        {"Origin": live_server.url},
        {"Origin": "https://chat.example", "Host": "chat.example"},
        {"Origin": "https://chat.example:8443", "Host": "chat.example"},
        {"Origin": "https://[2001:db8::1]:8443", "Host": "[2001:db8::1]"},
        {},
    ):
        assert (await send(browser, desk.key, browser.token, own)).status_code == 303, own


async def test_an_expired_form_is_shown_again(live_server: Live, operators: Database) -> None:
    """Edge case 53: an expired form is answered with a new one, which works."""
    desk = await make_desk(live_server, operators)
    browser = await make_browser(live_server)
    await browser.get("/sign-in")
    browser.client.cookies.clear()
    refused = await send(browser, desk.key, browser.token)
    assert refused.status_code == 403
    fresh = TOKEN.findall(refused.text)[0]
    assert fresh != browser.token
    assert (await send(browser, desk.key, fresh)).status_code == 303
    assert (await browser.get("/tenants")).status_code == 200


async def test_two_tabs(live_server: Live, operators: Database) -> None:
    """Edge case 53: every sign-in form that a browser has open works, in any order."""
    desk = await make_desk(live_server, operators)
    browser = await make_browser(live_server)
    tabs = [TOKEN.findall((await browser.get("/sign-in")).text)[0] for _ in range(3)]
    for token in tabs:
        assert (await send(browser, desk.key, token)).status_code == 303
        assert (await browser.get("/tenants")).status_code == 200


async def test_flags_of_the_form_cookie(live_server: Live) -> None:
    """Edge case 53: HttpOnly, SameSite, one hour, different in each browser."""
    values = set()
    for _ in range(2):
        browser = await make_browser(live_server)
        (cookie,) = (await browser.get("/sign-in")).headers.get_list("set-cookie")
        name, _, value = cookie.partition(";")[0].partition("=")
        assert name == "hlas_console_form"
        assert sign_ins.is_secret(value)
        values.add(value)
        assert cookie.partition("; ")[2].split("; ") == [
            "HttpOnly",
            "Max-Age=3600",
            "Path=/console",
            "SameSite=strict",
        ]
    assert len(values) == 2


@pytest.mark.settings(trusted_proxies="127.0.0.0/8")
async def test_cookies_over_tls(live_server: Live, operators: Database) -> None:
    """Edge case 53: `__Host-` and Secure, so no other host can set it and it is sent over TLS only.

    A cookie without the prefix is ignored.
    """
    desk = await make_desk(live_server, operators)
    browser = await make_browser(live_server)
    tls = {"X-Forwarded-Proto": "https"}
    planted = "b" * 43
    old = {**tls, "Cookie": f"hlas_console_form={planted}"}
    refused = await send(browser, desk.key, sign_ins.form_token(planted), old)
    assert refused.status_code == 403
    page = await browser.get("/sign-in", headers=tls)
    (cookie,) = page.headers.get_list("set-cookie")
    assert cookie.startswith("__Host-hlas_console_form=")
    own = {**tls, "Cookie": cookie.partition(";")[0], "Origin": live_server.url}
    answer = await send(browser, desk.key, browser.token, own)
    assert answer.status_code == 303
    (session,) = answer.headers.get_list("set-cookie")
    assert session.startswith("__Host-hlas_console=")
    for given in (cookie, session):
        for word in ("HttpOnly", "Path=/", "SameSite=strict", "Secure"):
            assert word in given.split("; "), given
        assert "Domain" not in given
    pair = {**tls, "Cookie": session.partition(";")[0]}
    assert (await browser.client.get("/console/tenants", headers=pair)).status_code == 200
    renamed = {**tls, "Cookie": session.partition(";")[0].removeprefix("__Host-")}
    assert (await browser.client.get("/console/tenants", headers=renamed)).status_code == 303


@pytest.mark.settings(rate_limit_admin_denied_ip="3/min")
async def test_bad_tries_lock_nobody_out(live_server: Live, operators: Database) -> None:
    """Edge case 53: after invalid keys, forms and cookies from an address valid ones work."""
    desk = await make_desk(live_server, operators)
    early = await make_browser(live_server, operators)
    late, guesser = await make_browser(live_server), await make_browser(live_server)
    assert await guess(guesser) == [401, 401, 303]
    for _ in range(3):
        assert await guess(guesser) == [429, 429, 429]
        assert (await desk.ask("GET", "/me")).status_code == 200
        assert (await early.get("/tenants")).status_code == 200
        assert (await early.post("/tenants", name="")).status_code == 422
        assert (await late.sign_in(desk.key)).status_code == 303
        assert (await late.get("/tenants")).status_code == 200
    ended = late.client.cookies["hlas_console"]
    assert (await late.post("/sign-out")).status_code == 303
    # It is among the digests until they are loaded again.
    live_server.app.state.services.known_secrets._loaded_at = 0.0
    late.client.cookies.set("hlas_console", ended)
    assert (await late.get("/tenants")).status_code == 429


@pytest.mark.settings(rate_limit_admin_denied_ip="3/min")
async def test_bad_tries_over_the_limit_cost_no_sql(
    live_server: Live, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 53: any number of attempts costs one query in a quarter of a second."""
    guesser = await make_browser(live_server)
    assert await guess(guesser) == [401, 401, 303]
    asked: list[str] = []

    def watch(name: str) -> None:
        call = getattr(Database, name)

        async def watched(self: Database, query: str, *arguments: Any) -> Any:
            # The background tasks of the service run queries in the meantime.
            if "administrators" in query or "signins" in query:
                asked.append(query)
            return await call(self, query, *arguments)

        monkeypatch.setattr(Database, name, watched)

    for name in ("one", "all", "execute"):
        watch(name)

    started = time.monotonic()
    for _ in range(3):
        tries = await asyncio.gather(*(guess(guesser) for _ in range(10)))
        assert tries == [[429, 429, 429]] * 10
    seconds = time.monotonic() - started
    assert set(asked) == {sign_ins.queries.valid_digests}
    assert len(asked) <= 2 + seconds / sign_ins.LOAD_SECONDS


async def test_new_secrets_are_known_at_once(live_server: Live, operators: Database) -> None:
    """Edge case 53: a new key or sign-in works at once, whenever the digests were loaded."""
    known = sign_ins.KnownSecrets(operators)
    assert not await known.contain(BAD_KEY)
    desk = await make_desk(live_server, operators)
    assert await known.contain(desk.key)
    browser = await make_browser(live_server)
    assert (await browser.sign_in(desk.key)).status_code == 303
    assert await known.contain(browser.client.cookies["hlas_console"])


async def test_sign_ins_of_a_key_are_bounded(live_server: Live, operators: Database) -> None:
    """A key has at most 50 sign-ins, the newest ones; other keys are not affected."""
    other = await make_browser(live_server, operators)
    desk = await make_desk(live_server, operators)
    await operators.execute(
        "insert into signins (tenant_id, id, administrator_id, secret_hash) "
        "select tenant_id, ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, id, "
        "sha256(n::text::bytea) from administrators, generate_series(1, 60) n "
        "where 'hlas_' || prefix = $1",
        desk.prefix,
    )
    newest = await make_browser(live_server)
    assert (await newest.sign_in(desk.key)).status_code == 303
    assert await count_sign_ins(operators) == 51
    for browser in (newest, other):
        assert (await browser.get("/tenants")).status_code == 200
