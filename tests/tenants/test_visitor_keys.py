"""Keys for visitors' identities through the admin API, and the audit of each change."""

from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import log_scan
from administration import audit_of, make_desk
from factories import Live, Site
from hlas.store.db import Database
from hlas.tenants import visitor_keys
from hlas.visitors import identities
from hlas.visitors.identities import Key
from signing import Server, pem_of


async def test_life_of_a_key(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's administrator adds, lists and removes keys; a secret is shown only once."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/visitor-keys"
    made = await desk.ask("POST", path, json={})
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    secret = made.json()["secret"]
    log_scan.hear(secret)
    assert made.json()["algorithm"] == "HS256"
    server = Server(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    for _ in range(2):
        given = await desk.ask("POST", path, json={"public_key": server.key.material})
        assert given.status_code == 201
        assert (given.json()["algorithm"], given.json()["secret"]) == ("RS256", None)
    listed = await desk.get(path)
    kids = [one["kid"] for one in listed["visitor_keys"]]
    assert kids == [made.json()["kid"], server.key.kid]
    assert secret not in str(listed)
    changed = await desk.ask(
        "PATCH", f"/tenants/{site.slug}", tag="*", json={"identity_mode": "required"}
    )
    assert changed.json()["identity_mode"] == "required"
    key = Key(made.json()["kid"], "HS256", secret)
    signer = Server()
    signer.key, signer._signing = key, secret
    opened = await live_server.client.post(
        "/widget/session",
        headers={"Origin": site.origin},
        json={"identity": signer.sign("eva", site.slug)},
    )
    assert opened.status_code == 200
    assert (await desk.ask("DELETE", f"{path}/{key.kid}")).status_code == 204
    gone = await desk.ask("DELETE", f"{path}/{key.kid}")
    assert (gone.status_code, gone.json()["detail"]) == (404, "visitor_key_not_found")
    assert (await desk.ask("DELETE", f"{path}/x")).status_code == 422
    actor = f"Ada ({desk.prefix})"
    assert (await audit_of(operators))[-4:] == [
        (actor, "visitor_key.add", key.kid),
        (actor, "visitor_key.add", server.key.kid),
        (actor, "tenant.update", site.slug),
        (actor, "visitor_key.remove", key.kid),
    ]
    told = await operators.all("select e::text as text from events e")
    assert all(secret not in row["text"] for row in told)


async def test_invalid_keys_are_refused(live_server: Live, site: Site, operators: Database) -> None:
    """Edge case 34: a private, weak or invalid key is a 422 that does not repeat it."""
    desk = await make_desk(live_server, operators)
    path = f"/tenants/{site.slug}/visitor-keys"
    private = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    bodies: list[dict[str, Any]] = [
        {"public_key": private.decode()},
        {"public_key": pem_of(rsa.generate_private_key(public_exponent=65537, key_size=1024))},
        {"public_key": ""},
        {"public_key": 7},
        {"public_key": "x" * 60_000},
        {"secret": "mine"},
        {"algorithm": "none"},
    ]
    for body in bodies:
        answer = await desk.ask("POST", path, json=body)
        assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request")
        assert set(answer.json()["errors"][0]) == {"loc", "type"}
    assert await operators.all("select 1 from visitor_keys") == []


async def test_number_of_keys_is_bounded(
    live_server: Live, site: Site, operators: Database
) -> None:
    """More keys than rotation needs are a 409; adding an existing key is not."""
    desk = await make_desk(live_server, operators)
    path = f"/tenants/{site.slug}/visitor-keys"
    server = Server(ec.generate_private_key(ec.SECP256R1()))
    same = {"public_key": server.key.material}
    for body in (same, *({} for _ in range(visitor_keys.MOST - 1)), same):
        assert (await desk.ask("POST", path, json=body)).status_code == 201
    full = await desk.ask("POST", path, json={})
    assert (full.status_code, full.json()["detail"]) == (409, "too_many_visitor_keys")
    assert len((await desk.get(path))["visitor_keys"]) == visitor_keys.MOST


async def test_keys_go_with_their_tenant(
    live_server: Live, site: Site, operators: Database
) -> None:
    """A removed tenant leaves no key behind."""
    await visitor_keys.add(operators, UUID(site.tenant_id), identities.make_secret())
    desk = await make_desk(live_server, operators)
    assert (await desk.ask("DELETE", f"/tenants/{site.slug}", tag="*")).status_code == 204
    assert await operators.all("select 1 from visitor_keys") == []
