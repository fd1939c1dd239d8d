"""Models and the settings of tenants' agents through the admin API."""

from typing import Any

import pytest

import log_scan
from administration import audit_of, dump_state, make_desk
from factories import Live, Site, make_site
from hlas.agent import agent_settings
from hlas.store.db import Database
from hlas.tenants import revisions, tenants

KEY = "sk-provider-0123456789abcdef"
SEALED = pytest.mark.settings(secrets_key="a key for tests that is long enough")
GPT: dict[str, Any] = {
    "name": "gpt",
    "base_url": "https://api.example.com/v1",
    "model": "gpt-9",
    "key": KEY,
    "input_price": "2.50",
    "output_price": "10",
}
LOCAL = {
    "name": "local",
    "base_url": "http://127.0.0.1:11434/v1",
    "model": "llama3",
    "is_free": True,
}


@SEALED
async def test_models(live_server: Live, operators: Database) -> None:
    """Add, list, read, change and remove; the key is in no response, log or event."""
    desk = await make_desk(live_server, operators)
    log_scan.hear(KEY)
    added = await desk.ask("POST", "/models", json=GPT)
    assert added.status_code == 201, added.text
    assert added.headers["Location"] == "/admin/models/gpt"
    shown = added.json()
    del shown["created_at"]
    assert shown == {
        "name": "gpt",
        "base_url": "https://api.example.com/v1",
        "model": "gpt-9",
        "has_key": True,
        "input_price": "2.5",
        "output_price": "10",
        "tenants": [],
    }
    assert added.headers["ETag"] == f'"{revisions.tag(added.json())}"'
    assert await desk.get("/models") == {"models": [added.json()]}
    assert await desk.get("/models/gpt") == added.json()
    tag = await desk.tag("/models/gpt")
    changed = await desk.ask("PATCH", "/models/gpt", tag=tag, json={"is_free": True, "key": "new"})
    assert changed.json() == {**added.json(), "input_price": "0", "output_price": "0"}
    outdated = await desk.ask("PATCH", "/models/gpt", tag=tag, json={"model": "gpt-10"})
    assert (outdated.status_code, outdated.json()["detail"]) == (412, "precondition_failed")
    assert (await desk.ask("PATCH", "/models/gpt", json={})).status_code == 428
    assert (await desk.ask("DELETE", "/models/gpt")).status_code == 428
    assert (await desk.ask("DELETE", "/models/gpt", tag=tag)).status_code == 412
    assert (await desk.ask("DELETE", "/models/gpt", tag="*")).status_code == 204
    events = await desk.get("/audit", action="model")
    assert [event["action"] for event in events["events"]] == [
        "model.remove",
        "model.update",
        "model.add",
    ]
    assert {event["tenant_id"] for event in events["events"]} == {None}
    texts = [answer.text for answer in (added, changed)] + [str(events), str(live_server.events())]
    assert not [text for text in texts if KEY in text or KEY[4:16] in text]


@SEALED
async def test_refused_models(live_server: Live, operators: Database) -> None:
    """Edge case 34: each has its status and code, none names the key, and nothing is stored."""
    desk = await make_desk(live_server, operators)
    await desk.ask("POST", "/models", json=LOCAL)
    shop = await tenants.add(operators, "Shop", "shop", [])
    await agent_settings.update(operators, shop, {"models": ["local"]})
    before = await audit_of(operators)
    cases: list[tuple[str, str, Any, int, str]] = [
        ("POST", "/models", LOCAL, 409, "model_taken"),
        ("POST", "/models", {**GPT, "key": "a b"}, 422, "invalid_request"),
        ("POST", "/models", {**GPT, "base_url": "https://a:b@c.example"}, 422, "invalid_request"),
        ("POST", "/models", {**LOCAL, "name": "x", "is_free": False}, 422, "price_unknown"),
        ("PATCH", "/models/no-such", {"model": "x"}, 404, "model_not_found"),
        ("PATCH", "/models/local", {"input_price": "1"}, 422, "invalid_request"),
        ("PATCH", "/models/local", {"model": "gpt-9"}, 422, "price_unknown"),
        ("PATCH", "/models/local", {"base_url": "https://x.example"}, 422, "price_unknown"),
        ("GET", "/models/no-such", None, 404, "model_not_found"),
        ("GET", "/models/NO", None, 422, "invalid_request"),
        ("DELETE", "/models/no-such", None, 404, "model_not_found"),
        ("DELETE", "/models/local", None, 409, "model_in_use"),
    ]
    for method, path, body, status, code in cases:
        answer = await desk.ask(method, path, tag="*", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (status, code), (method, path)
        assert KEY not in answer.text
    assert answer.json()["tenants"] == ["shop"]
    assert await audit_of(operators) == before


async def test_no_key_without_a_secret(live_server: Live, operators: Database) -> None:
    """Without SECRETS_KEY a provider's key is refused; a model without a key is not."""
    desk = await make_desk(live_server, operators)
    refused = await desk.ask("POST", "/models", json=GPT)
    assert (refused.status_code, refused.json()["detail"]) == (409, "vault_shut")
    assert (await desk.ask("POST", "/models", json=LOCAL)).status_code == 201


async def test_settings(live_server: Live, site: Site, operators: Database) -> None:
    """Read, change with If-Match, and find the change in the audit."""
    desk = await make_desk(live_server, operators)
    await desk.ask("POST", "/models", json=LOCAL)
    path = f"/tenants/{site.slug}/agent"
    read = await desk.ask("GET", path)
    assert read.json() == {
        "models": [],
        "instructions": "",
        "tools": ["search_knowledge", "get_product", "hand_over"],
        "acting_tools": [],
        "link_hosts": [],
        "max_steps": None,
        "is_debug": False,
    }
    assert read.headers["ETag"] == f'"{revisions.tag(read.json())}"'
    body = {
        "models": ["local"],
        "tools": ["hand_over"],
        "max_steps": 5,
        "link_hosts": ["A.example"],
    }
    changed = await desk.ask("PATCH", path, tag=read.headers["ETag"], json=body)
    assert changed.status_code == 200, changed.text
    assert changed.json() == {**read.json(), **body, "link_hosts": ["a.example"]}
    assert changed.headers["ETag"] == await desk.tag(path)
    again = await desk.ask("PATCH", path, tag=read.headers["ETag"], json={"max_steps": 1})
    assert (again.status_code, again.json()["detail"]) == (412, "precondition_failed")
    assert (await desk.ask("PATCH", path, json={"max_steps": 1})).status_code == 428
    unknown = await desk.ask("PATCH", path, tag="*", json={"models": ["no-such"]})
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "model_not_found")
    bad = await desk.ask("PATCH", path, tag="*", json={"tools": ["hand_over", "rm"]})
    assert bad.json()["errors"] == [{"loc": ["body", "tools", 1], "type": "invalid_tool"}]
    [event] = (await desk.get("/audit", action="agent"))["events"]
    assert (event["tenant"], event["after"]["models"]) == (site.slug, ["local"])


async def test_a_tenants_key_sets_no_models(
    live_server: Live, site: Site, operators: Database
) -> None:
    """A tenant's own key changes instructions, tools and hosts; models and debug are 403."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/agent"
    own = {
        "instructions": "Be brief.",
        "tools": ["hand_over"],
        "acting_tools": ["hand_over"],
        "link_hosts": ["a.example"],
        "max_steps": 1,
    }
    changed = await desk.ask("PATCH", path, tag=await desk.tag(path), json=own)
    assert changed.json() == {**own, "models": [], "is_debug": False}
    before = await audit_of(operators)
    forbidden: list[dict[str, Any]] = [
        {"models": []},
        {"models": ["local"]},
        {"is_debug": False},
        {"max_steps": 2, "is_debug": True},
    ]
    for body in forbidden:
        refused = await desk.ask("PATCH", path, tag="*", json=body)
        assert (refused.status_code, refused.json()["detail"]) == (403, "forbidden"), body
    for method, below in (
        ("GET", ""),
        ("POST", ""),
        ("GET", "/x"),
        ("PATCH", "/x"),
        ("DELETE", "/x"),
    ):
        refused = await desk.ask(method, f"/models{below}", tag="*")
        assert (refused.status_code, refused.json()["detail"]) == (403, "forbidden"), method
    assert await audit_of(operators) == before


async def test_another_tenants_settings(live_server: Live, operators: Database) -> None:
    """Edge case 36: another tenant's settings are 404 to read and to change, and stay."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    theirs = await tenants.find_tenant(operators, other.slug)
    await agent_settings.update(operators, theirs, {"instructions": "their instructions"})
    desk = await make_desk(live_server, operators, own.slug)
    before = await dump_state(operators)
    for method, body in (("GET", None), ("PATCH", {"instructions": "taken over"})):
        answer = await desk.ask(method, f"/tenants/{other.slug}/agent", tag="*", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (404, "tenant_not_found")
        assert "their instructions" not in answer.text
    assert await dump_state(operators) == before
