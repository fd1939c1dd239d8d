"""A tenant's products through the admin API."""

from administration import make_desk
from factories import Live, Site, make_site
from hlas.store.db import Database

KETTLE = {
    "sku": "K/1 a",
    "name": "Kettle",
    "description": "",
    "price": "CZK 500",
    "url": "https://shop.example/k",
    "attributes": {"colour": "red"},
}


async def test_life_of_products(live_server: Live, site: Site, operators: Database) -> None:
    """A tenant's key can import, list and remove products; each change is one event."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/products"
    mug = {"sku": "M", "name": "Mug"}
    saved = await desk.ask("PUT", path, json={"products": [KETTLE, mug]})
    assert (saved.status_code, saved.json()) == (
        200,
        {"added": 2, "updated": 0, "unchanged": 0, "removed": 0},
    )
    page = await desk.get(path, limit=1)
    assert page == {"products": [KETTLE], "next_cursor": "K/1 a"}
    rest = await desk.get(path, cursor="K/1 a")
    assert [one["sku"] for one in rest["products"]] == ["M"]
    replaced = await desk.ask("PUT", path, json={"products": [KETTLE], "replace": True})
    assert replaced.json() == {"added": 0, "updated": 0, "unchanged": 1, "removed": 1}
    assert (await desk.ask("DELETE", f"{path}/K%2F1%20a")).status_code == 204
    gone = await desk.ask("DELETE", f"{path}/K%2F1%20a")
    assert (gone.status_code, gone.json()["detail"]) == (404, "product_not_found")
    rows = await operators.all("select action from events where action like 'product.%'")
    assert [row["action"] for row in rows] == [*["product.import"] * 2, "product.remove"]


async def test_invalid_products(live_server: Live, site: Site, operators: Database) -> None:
    """All products are saved or none; a problem is told by its place, never by its value."""
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{site.slug}/products"
    for wrong, place, kind in (
        ({"sku": ""}, "sku", "string_too_short"),
        ({"sku": "A", "name": "x\ny"}, "name", "invalid_character"),
        ({"sku": "A", "url": "javascript:1"}, "url", "invalid_url"),
        ({"sku": "K/1 a"}, "sku", "sku_repeated"),
        ({"sku": "A", "tenant_id": "x"}, "tenant_id", "extra_forbidden"),
    ):
        given = {"products": [KETTLE, {"name": "x", **wrong}]}
        answer = await desk.ask("PUT", path, json=given)
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"loc": ["body", "products", 1, place], "type": kind}]
    assert (await desk.get(path))["products"] == []


async def test_other_tenants(live_server: Live, site: Site, operators: Database) -> None:
    """Another tenant's products are 404, like those of a tenant that does not exist."""
    other = await make_site(live_server, operators)
    desk = await make_desk(live_server, operators, site.slug)
    path = f"/tenants/{other.slug}/products"
    for method, place in (("GET", path), ("PUT", path), ("DELETE", f"{path}/A")):
        answer = await desk.ask(method, place, json={"products": [KETTLE]})
        assert (answer.status_code, answer.json()["detail"]) == (404, "tenant_not_found")
