"""Tenants, domains, looks and limits through the admin API, and the audit of each change."""

import asyncio
from typing import Any

from administration import Desk, audit_of, lock_rows, make_desk, wait_for_locks
from factories import Live, Site, make_site
from hlas.store.db import Database
from hlas.tenants import revisions, tenants

NEW = {
    "name": "Květinářství",
    "slug": "flowers",
    "domains": ["Flowers.example", "localhost:3000"],
    "ui_config": {"title": "Ahoj", "color": "#aa3366", "suggestions": ["Kdy máte otevřeno?"]},
    "fallback_text": "Zavolejte nám.",
    "fallback_texts": {"en": "Call us."},
}


async def make_flowers(desk: Desk) -> dict[str, Any]:
    answer = await desk.ask("POST", "/tenants", json=NEW)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_the_revision_is_of_what_is_sent(live_server: Live, operators: Database) -> None:
    """The ETag of a tenant or an entry is the digest of the body, with its keys in this order."""
    desk = await make_desk(live_server, operators)
    tenant = await desk.ask("POST", "/tenants", json=NEW)
    question = {"question": "When?", "answer": "Now.", "keywords": ["time"], "language": "en"}
    entry = await desk.ask("POST", "/tenants/flowers/knowledge", json=question)
    for answer in (tenant, entry):
        assert answer.headers["ETag"] == f'"{revisions.tag(answer.json())}"'
    assert ",".join(tenant.json()) == (
        "id,slug,name,is_active,domains,ui_config,fallback_text,fallback_texts,limits,"
        "retention_days,identity_mode,handler,created_at"
    )
    assert ",".join(entry.json()) == (
        "id,question,answer,keywords,language,kind,wordings,url,source_id,imported_as,is_edited,"
        "created_at,updated_at"
    )


async def test_life_of_a_tenant(live_server: Live, operators: Database) -> None:
    """Add, read, change, remove; each change is one event with actor, before, after, request."""
    desk = await make_desk(live_server, operators)
    added = await desk.ask("POST", "/tenants", json=NEW, headers={"X-Request-Id": "first"})
    assert added.status_code == 201
    assert added.headers["Location"] == "/admin/tenants/flowers"
    assert added.json()["domains"] == ["flowers.example", "localhost:3000"]
    read = await desk.ask("GET", "/tenants/flowers")
    assert read.json() == added.json()
    assert read.headers["ETag"] == added.headers["ETag"]

    changes = {"name": "Flowers", "limits": {"messages_tenant": "5 / minute"}, "retention_days": 30}
    changed = await desk.ask(
        "PATCH",
        "/tenants/flowers",
        tag=read.headers["ETag"],
        json=changes,
        headers={"X-Request-Id": "second"},
    )
    assert changed.status_code == 200
    assert changed.json() == {
        **read.json(),
        "name": "Flowers",
        "limits": {"messages_tenant": "5/min"},
        "retention_days": 30,
    }
    assert changed.headers["ETag"] == await desk.tag("/tenants/flowers")
    removed = await desk.ask("DELETE", "/tenants/flowers", tag=changed.headers["ETag"])
    assert removed.status_code == 204
    assert (await desk.ask("GET", "/tenants/flowers")).status_code == 404

    events = (await desk.get("/audit", tenant="flowers"))["events"]
    assert [event["action"] for event in events] == ["tenant.remove", "tenant.update", "tenant.add"]
    assert {event["actor"] for event in events} == {f"Ada ({desk.prefix})"}
    assert [event["request_id"] for event in events[1:]] == ["second", "first"]
    assert events[1]["before"] == {
        "name": "Květinářství",
        "limits": {},
        "retention_days": None,
    }
    assert events[1]["after"] == {
        "name": "Flowers",
        "limits": {"messages_tenant": "5/min"},
        "retention_days": 30,
    }
    assert events[2]["after"]["domains"] == ["flowers.example", "localhost:3000"]


async def test_nobody_overwrites_what_they_have_not_seen(
    live_server: Live, operators: Database
) -> None:
    """Of concurrent changes to the same state one succeeds; the others get 412."""
    desk = await make_desk(live_server, operators)
    await make_flowers(desk)
    tag = await desk.tag("/tenants/flowers")
    async with lock_rows(operators, "select from tenants for update"):
        asked = [
            asyncio.create_task(
                desk.ask("PATCH", "/tenants/flowers", tag=tag, json={"name": f"Name {number}"})
            )
            for number in range(3)
        ]
        await wait_for_locks(operators, len(asked))
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412]
    won = next(answer.json() for answer in answers if answer.status_code == 200)
    assert (await desk.get("/tenants/flowers"))["name"] == won["name"]
    assert [action for _, action, _ in await audit_of(operators)].count("tenant.update") == 1


async def test_if_match(live_server: Live, operators: Database) -> None:
    """Missing: 428. Outdated, weak or invalid: 412. One of several, or *: accepted."""
    desk = await make_desk(live_server, operators)
    await make_flowers(desk)
    path, tag = "/tenants/flowers", await desk.tag("/tenants/flowers")
    missing = await desk.ask("PATCH", path, json={"name": "x"})
    assert (missing.status_code, missing.json()["detail"]) == (428, "precondition_required")
    for bad in ('"0"', f"W/{tag}", tag.strip('"'), "", '"'):
        answer = await desk.ask("PATCH", path, tag=bad, json={"name": "x"})
        assert (answer.status_code, answer.json()["detail"]) == (412, "precondition_failed"), bad
    assert (await desk.ask("DELETE", path, tag='"0"')).status_code == 412
    several = await desk.ask("PATCH", path, tag=f'"0", {tag}', json={"name": "x"})
    assert several.status_code == 200
    assert (await desk.ask("PATCH", path, tag="*", json={"name": "y"})).status_code == 200


async def test_a_change_without_effect_adds_no_event(
    live_server: Live, operators: Database
) -> None:
    """A change without an effect keeps the ETag and adds no event."""
    desk = await make_desk(live_server, operators)
    await make_flowers(desk)
    before, tag = await audit_of(operators), await desk.tag("/tenants/flowers")
    same = {"name": NEW["name"], "ui_config": NEW["ui_config"], "is_active": True}
    answer = await desk.ask("PATCH", "/tenants/flowers", tag=tag, json=same)
    assert (answer.status_code, answer.headers["ETag"]) == (200, tag)
    await tenants.set_active(operators, "flowers", active=True)
    assert await audit_of(operators) == before


async def test_a_failed_change_leaves_no_event(live_server: Live, operators: Database) -> None:
    """A taken slug or domain is a conflict, and adds no event."""
    desk = await make_desk(live_server, operators)
    await make_flowers(desk)
    before = await audit_of(operators)
    for body, code in (
        ({"name": "B", "slug": "flowers"}, "slug_taken"),
        ({"name": "B", "slug": "b", "domains": ["flowers.example"]}, "domain_taken"),
    ):
        answer = await desk.ask("POST", "/tenants", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (409, code)
    again = await desk.ask("POST", "/tenants/flowers/domains", json={"domain": "flowers.example"})
    assert (again.status_code, again.json()["detail"]) == (409, "domain_taken")
    assert await audit_of(operators) == before
    assert len((await desk.get("/tenants"))["tenants"]) == 1


NOT_A_TENANT: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": ""}, ["name"]),
    ({"name": " "}, ["name"]),
    ({"name": "x" * 201}, ["name"]),
    ({"name": "a\x1b[31m"}, ["name"]),
    ({"name": None}, ["name"]),
    ({"slug": "other"}, ["slug"]),
    ({"is_active": "yes"}, ["is_active"]),
    ({"limits": {"session_ip": "1/min"}}, ["limits"]),
    ({"limits": {"messages_tenant": "lots"}}, ["limits"]),
    ({"limits": {"messages_tenant": 5}}, ["limits", "messages_tenant"]),
    ({"retention_days": 0}, ["retention_days"]),
    ({"fallback_text": "a\x00b"}, ["fallback_text"]),
    ({"fallback_texts": {"cs": ""}}, ["fallback_texts", "cs"]),
    ({"fallback_texts": {"de": "Ja"}}, ["fallback_texts", "de", "[key]"]),
    ({"ui_config": {"texts": {"cs": {"color": "#aa3366"}}}}, ["ui_config", "texts", "cs", "color"]),
    ({"ui_config": {"colour": "#aa3366"}}, ["ui_config", "colour"]),
    ({"ui_config": {"color": "red"}}, ["ui_config", "color"]),
    ({"ui_config": {"color": "#aa3366\n"}}, ["ui_config", "color"]),
    ({"ui_config": {"privacy_url": "javascript:alert(1)"}}, ["ui_config", "privacy_url"]),
    ({"ui_config": {"position": "middle"}}, ["ui_config", "position"]),
    ({"ui_config": {"suggestions": ["x"] * 7}}, ["ui_config", "suggestions"]),
    ({"ui_config": {"title": "two\nlines"}}, ["ui_config", "title"]),
    ({"ui_config": []}, ["ui_config"]),
]


async def test_what_a_tenant_cannot_be(live_server: Live, operators: Database) -> None:
    """Edge case 34: an invalid value is a 422 that names its location, not its content."""
    desk = await make_desk(live_server, operators)
    made = await make_flowers(desk)
    for body, place in NOT_A_TENANT:
        answer = await desk.ask("PATCH", "/tenants/flowers", tag="*", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request"), body
        assert answer.json()["errors"][0]["loc"] == ["body", *place]
        assert set(answer.json()["errors"][0]) == {"loc", "type"}
    assert await desk.get("/tenants/flowers") == made


async def test_invalid_bodies(live_server: Live, operators: Database) -> None:
    """Edge case 34: invalid JSON is a 422 for an administrator, and a 401 without a key."""
    desk = await make_desk(live_server, operators)
    kind = {"Content-Type": "application/json"}
    for body in (b"", b"[]", b"{", b'{"name": NaN}', b'{"name": "\\ud800"}', b"[" * 10_000):
        answer = await desk.ask("POST", "/tenants", content=body, headers=kind)
        assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request"), body
        stranger = await live_server.client.post("/admin/tenants", content=body, headers=kind)
        assert stranger.status_code == 401


async def test_domains(live_server: Live, operators: Database) -> None:
    """Stored in canonical spelling, listed, removed by any spelling; one event each."""
    desk = await make_desk(live_server, operators)
    await make_flowers(desk)
    path = "/tenants/flowers/domains"
    added = await desk.ask("POST", path, json={"domain": "HTTPS://Kytky.example:443"})
    assert (added.status_code, added.json()) == (201, {"domain": "kytky.example"})
    assert "kytky.example" in (await desk.get(path))["domains"]
    tag = await desk.tag("/tenants/flowers")
    gone = await desk.ask("DELETE", path, params={"domain": "https://kytky.example"})
    assert gone.status_code == 204
    assert tag != await desk.tag("/tenants/flowers")
    again = await desk.ask("DELETE", path, params={"domain": "https://kytky.example"})
    assert (again.status_code, again.json()["detail"]) == (404, "domain_not_found")
    bad = await desk.ask("POST", path, json={"domain": "https://kytky.example/path"})
    assert bad.json()["errors"] == [{"loc": ["body", "domain"], "type": "invalid_domain"}]
    actions = [action for _, action, _ in await audit_of(operators)]
    assert actions[-2:] == ["domain.add", "domain.remove"]


async def test_tenants_come_by_pages(live_server: Live, operators: Database) -> None:
    """Following next_cursor lists every tenant once, in order, and ends."""
    desk = await make_desk(live_server, operators)
    for number in range(7):
        await tenants.add(operators, f"T{number}", f"t{number}", [])
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await desk.get("/tenants", limit=3, **cursor)
        seen += [one["slug"] for one in page["tenants"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == [f"t{number}" for number in range(7)]


async def test_a_misspelt_filter_is_refused(live_server: Live, operators: Database) -> None:
    """An unknown filter is refused; ignoring it would show everything."""
    desk = await make_desk(live_server, operators)
    for query in ({"tennant": "x"}, {"limit": 0}, {"limit": 101}, {"cursor": "x"}, {"action": "%"}):
        answer = await desk.ask("GET", "/audit", params=query)
        assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request"), query


async def test_what_a_tenants_own_key_may_change(live_server: Live, operators: Database) -> None:
    """A tenant's key may change name, looks, texts, retention, sessions; not limits or activity."""
    site = await make_site(live_server, operators)
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}"
    own = {
        "name": "Mine",
        "ui_config": {"theme": "dark"},
        "fallback_text": None,
        "fallback_texts": {"cs": "Zavolejte."},
        "retention_days": 7,
    }
    changed = await desk.ask("PATCH", path, tag=await desk.tag(path), json=own)
    assert changed.status_code == 200, changed.text
    assert {name: changed.json()[name] for name in own} == own
    before = await audit_of(operators)
    operators_only: list[dict[str, Any]] = [
        {"limits": {}},
        {"is_active": True},
        {"name": "x", "is_active": False},
    ]
    for forbidden in operators_only:
        refused = await desk.ask("PATCH", path, tag="*", json=forbidden)
        assert (refused.status_code, refused.json()["detail"]) == (403, "forbidden")
    for method, below, body in (
        ("POST", "/domains", {"domain": "evil.example"}),
        ("DELETE", "", None),
    ):
        refused = await desk.ask(method, path + below, tag="*", json=body)
        assert (refused.status_code, refused.json()["detail"]) == (403, "forbidden")
    assert await audit_of(operators) == before
    assert before[-1] == (f"Ada ({desk.prefix})", "tenant.update", site.slug)


async def test_visitors_are_signed_out(live_server: Live, site: Site, operators: Database) -> None:
    """After a sign-out the tenant's tokens are invalid at once; one event records it."""
    desk = await make_desk(live_server, operators, site.slug)
    assert (await desk.ask("POST", f"/tenants/{site.slug}/sign-out")).status_code == 204
    assert (await site.send()).json()["detail"] == "session_revoked"
    assert (await audit_of(operators))[-1][1] == "tenant.sign_out"


async def test_new_looks_reach_the_widget(
    live_server: Live, site: Site, operators: Database
) -> None:
    """New looks are in the response of the next session."""
    desk = await make_desk(live_server, operators)
    looks = {
        "title": "<script>alert(1)</script>",
        "position": "left",
        "z_index": 5,
        "texts": {"cs": {"title": "Napište", "suggestions": ["Kdy?"]}},
    }
    answer = await desk.ask(
        "PATCH", f"/tenants/{site.slug}", tag="*", json={"ui_config": {**looks, "color": None}}
    )
    assert answer.json()["ui_config"] == looks
    assert (await site.open())["ui_config"] == looks
