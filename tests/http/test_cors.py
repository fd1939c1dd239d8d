"""Which pages may read which responses."""

import httpx
import pytest

from factories import Site, make_site
from hlas.errors import HlasError
from hlas.store.db import Database
from hlas.tenants import tenants

EXPOSED = {"retry-after", "ratelimit", "ratelimit-policy", "idempotent-replayed", "x-request-id"}


async def preflight(site: Site, *origins: str, path: str = "/widget/messages") -> httpx.Response:
    headers = [
        *(("Origin", origin) for origin in origins),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type,idempotency-key"),
    ]
    return await site.live.client.request("OPTIONS", path, headers=headers)


def read_allowed_origin(answer: httpx.Response) -> str | None:
    assert answer.headers.get_list("vary", split_commas=True).count("Origin") == 1
    origin: str | None = answer.headers.get("access-control-allow-origin")
    return origin


def words(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",")}


async def test_preflight(site: Site, operators: Database) -> None:
    """Edge case 30: a preflight from an active tenant's origin is answered and can be cached."""
    answer = await preflight(site, site.origin)
    assert answer.status_code == 204
    assert read_allowed_origin(answer) == site.origin
    assert words(answer.headers["access-control-allow-headers"]) >= {
        "authorization",
        "content-type",
        "idempotency-key",
        "x-request-id",
    }
    assert words(answer.headers["access-control-allow-methods"]) >= {"get", "post", "put"}
    assert int(answer.headers["access-control-max-age"]) >= 600
    assert answer.headers["x-request-id"]
    for origins in (["https://evil.example"], ["null"], [site.origin, site.origin], [""]):
        refused = await preflight(site, *origins)
        assert refused.status_code == 403
        assert read_allowed_origin(refused) is None
    denied = [line.get("origin") for line in site.live.events("origin_denied")]
    assert denied == ["https://evil.example", None, None, None]
    closed = await preflight(site, site.origin, path="/admin/tenants")
    assert read_allowed_origin(closed) is None
    await tenants.set_active(operators, site.slug, active=False)
    site.live.app.state.services.origins._known.clear()
    assert read_allowed_origin(await preflight(site, site.origin)) is None


async def test_denied_origins_are_named(site: Site) -> None:
    """The log names the refused page's origin, once per request and in normalised form."""
    for origin in (
        "HTTPS://Evil.Example:443",
        "https://evil.example/<b>",
        "https://e\tvil.example",
    ):
        assert (await preflight(site, origin)).status_code == 403
        headers = {"Origin": origin}
        assert (await site.live.client.post("/widget/session", headers=headers)).is_client_error
    for event in ("origin_denied", "session_denied"):
        denied = [line.get("origin") for line in site.live.events(event)]
        assert denied == ["https://evil.example", None, None], event


async def test_every_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 30: 200, 400, 401, 404, 405, 409, 413, 415, 422, 500 and 503 have CORS headers."""
    client, headers = site.live.client, site.headers()
    await site.send("the first", key="cors-key")

    async def post(content: bytes = b"{}", **extra: str) -> httpx.Response:
        given = {**headers, **{name.replace("_", "-"): value for name, value in extra.items()}}
        return await client.post("/widget/messages", headers=given, content=content)

    answers = [
        (200, await site.send("an answer")),
        (400, await post(b'{"text":""}')),
        (401, await post(Authorization="Bearer rubbish")),
        (404, await client.get("/nothing", headers=headers)),
        (405, await client.get("/widget/messages", headers=headers)),
        (409, await site.send("another", key="cors-key")),
        (413, await post(b" " * 70_000)),
        (415, await post(Content_Type="text/plain")),
        (422, await post(b"[]")),
    ]

    async def crash(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("hlas.visitors.sessions.check", crash)
    answers.append((500, await client.get("/widget/whoami", headers=headers)))
    await site.live.app.state.services.database._pool.close()
    await site.live.app.state.services.writer.close()
    answers.append((503, await site.send("nobody writes")))
    answers.append((503, await client.post("/widget/session", headers={"Origin": site.origin})))
    for status, answer in answers:
        assert answer.status_code == status, answer.text
        assert read_allowed_origin(answer) == site.origin, status
        assert words(answer.headers["access-control-expose-headers"]) == EXPOSED
        assert answer.headers["x-request-id"]
        if status >= 400:
            assert answer.json()["request_id"] == answer.headers["x-request-id"]
    crashed = [line for line in site.live.events("error") if line["error_code"] == "internal_error"]
    assert [line["error"] for line in crashed] == ["RuntimeError"]
    assert "planted" not in str(site.live.events())


async def test_other_origins_cannot_read(site: Site, operators: Database) -> None:
    """Edge case 36: another page, including another tenant's, cannot read a response."""
    other = await make_site(site.live, operators)
    for origin in ("https://evil.example", "null", other.origin):
        headers = {**site.headers(), "Origin": origin}
        for path in ("/widget/whoami", f"/widget/conversations/{site.conversation_id}/messages"):
            answer = await site.live.client.get(path, headers=headers)
            assert answer.status_code == 403
            assert read_allowed_origin(answer) is None
    for path in ("/health", "/nothing"):
        answer = await site.live.client.get(path, headers={"Origin": "https://evil.example"})
        assert read_allowed_origin(answer) is None
    assert "access-control-allow-credentials" not in (await preflight(site, site.origin)).headers


def test_every_error_has_a_sentence() -> None:
    """Every error class has a code and a readable sentence."""
    kinds = [HlasError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert kind.__doc__
        assert kind.__doc__.strip().endswith(".")
        assert kind.code == kind.code.lower()
