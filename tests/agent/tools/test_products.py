"""Products: files with clear errors, and a search in Czech and English."""

import time
from uuid import UUID

import pytest
import pytest_asyncio

from hlas.agent.tools import product_files, products
from hlas.agent.tools.product_files import parse
from hlas.agent.tools.products import MOST_PRODUCTS, Product, ProductError, find_products
from hlas.demo import tenant as demo
from hlas.errors import ProductNotFound, TooManyProducts
from hlas.store.db import Database
from hlas.tenants import tenants

ROWS = [
    Product("START-100", "Start", "Internet 100 Mb/s.", "299 Kč"),
    Product("K-7/b", "Rychlovarná konvice", "Uvaří litr vody za minutu.", "500 Kč"),
    Product("BIKE", "Mountain bicycle", "A bicycle for rough paths, with gears.", "CZK 9000"),
    Product("TOY", "Dětské kolo", "Pro malé cyklisty.", "2 000 Kč"),
]


@pytest_asyncio.fixture
async def tenant_id(operators: Database) -> UUID:
    made = await tenants.add(operators, "Shop", "shop", [])
    await products.save(operators, made.id, ROWS, source="test")
    return made.id


def test_read() -> None:
    """A file of a spreadsheet: byte order mark, semicolons, quotes, any further columns."""
    text = 'SKU; Name ;price;colour;url\r\n A1 ;"Kettle; red";1,50;red;\r\n;;;;\r\nA2;Mug;2;;https://a.example/m'
    assert parse("a.csv", b"\xef\xbb\xbf" + text.encode()) == [
        Product("A1", "Kettle; red", "", "1,50", "", {"colour": "red"}),
        Product("A2", "Mug", "", "2", "https://a.example/m"),
    ]
    assert (
        parse("a.csv", b'sku,name,description\nA,B,"two\nlines"\n')[0].description == "two\nlines"
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "a.csv, line 1: the header must name sku and name"),
        (b"name,price\nA,1\n", "a.csv, line 1: the header must name sku and name"),
        (b"sku,name,name\n", "a.csv, line 1: a column twice"),
        (b"sku,name,\n", "a.csv, line 1: a column without a name"),
        (b"sku,name\n", "a.csv: no products; it has no rows under its header"),
        (b"sku,name\nA,B\nC\n", "a.csv, line 3: 1 cells where the header has 2"),
        (b"sku,name\nA,B\n,C\n", "a.csv, line 3: the sku or the name is empty"),
        (b'sku,name\nA,"B\nB"\nA,C\n', "a.csv, line 2: the sku or the name has a control"),
        (b"sku,name\nA,B\n\nA,C\n", "a.csv, line 4: the same sku as on line 2"),
        (b"sku,name\nA,\xff\n", "a.csv, line 2: not UTF-8"),
        (b"sku,name\nA,\0\n", "a.csv, line 2: a NUL character"),
        (b'sku,name\nA,"B\n', "a.csv, line 2: unexpected end of data"),
        (b"sku,name\n" + b"A" * 101 + b",B\n", "line 2: the sku is longer than 100"),
        (b"sku,name\nA," + b"B" * 501 + b"\n", "line 2: the name is longer than 500"),
        (b"sku,name,url\nA,B,javascript:alert(1)\n", "line 2: the url is not an http"),
        (b"sku,name,x\nA,B," + b"C" * 501 + b"\n", "line 2: a cell of another column is longer"),
    ],
)
def test_problems(data: bytes, told: str) -> None:
    """A problem is one line that names the file and the line."""
    with pytest.raises(ProductError) as raised:
        parse("a.csv", data)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_too_many_rows() -> None:
    """A file has at most 20 000 products."""
    rows = "".join(f"{number},x\n" for number in range(MOST_PRODUCTS + 1))
    with pytest.raises(ProductError, match="line 20002: more than 20000 products"):
        parse("a.csv", f"sku,name\n{rows}".encode())


async def test_save(operators: Database, tenant_id: UUID) -> None:
    """Saved again, products are updated, unchanged or, with `replace`, removed; all or none."""
    changed = [ROWS[0], Product("K-7/b", "Konvice"), Product("NEW", "New")]
    saved = await products.save(operators, tenant_id, changed, source="a", replace=True)
    assert (saved.added, saved.updated, saved.unchanged, saved.removed) == (1, 1, 1, 2)
    page, cursor = await products.page_products(operators, tenant_id, None, 2)
    assert ([one.sku for one in page], cursor) == (["K-7/b", "NEW"], "NEW")
    rest, cursor = await products.page_products(operators, tenant_id, cursor, 2)
    assert (rest, cursor) == ([ROWS[0]], None)
    with pytest.raises(ProductNotFound):
        await products.remove_products(operators, tenant_id, ["NEW", "none"])
    await products.remove_products(operators, tenant_id, ["NEW"])
    rows = await operators.all("select action, target from events where action like 'product.%'")
    assert [tuple(row) for row in rows] == [
        ("product.import", "test"),
        ("product.import", "a"),
        ("product.remove", "NEW"),
    ]


@pytest.mark.parametrize(
    ("asked", "sku"),
    [
        ("START-100", "START-100"),
        ("start-100", "START-100"),
        (" k-7/b ", "K-7/b"),
        ("rychlovarnou konvici", "K-7/b"),
        ("konvice na vodu", "K-7/b"),
        ("rychlovarna konvyce", "K-7/b"),
        ("bicycles", "BIKE"),
        ("mountain bycicle", "BIKE"),
        ("kolo pro děti", "TOY"),
        ("dětského kola", "TOY"),
    ],
)
async def test_find(database: Database, tenant_id: UUID, asked: str, sku: str) -> None:
    """By sku in any case, by inflected words, without diacritics, and with typos."""
    found = await find_products(database, str(tenant_id), asked)
    assert found
    assert found[0].sku == sku


@pytest.mark.parametrize("asked", ["piano", "", "\0", "a the", "%", "'; drop table products", "🙂"])
async def test_find_nothing(database: Database, tenant_id: UUID, asked: str) -> None:
    """What is not there is not found, whatever the text."""
    assert await find_products(database, str(tenant_id), asked) == []


async def test_sku_alone(database: Database, tenant_id: UUID) -> None:
    """A sku finds its product and no similar ones."""
    assert len(await find_products(database, str(tenant_id), "BIKE")) == 1


async def test_other_tenants(database: Database, operators: Database, tenant_id: UUID) -> None:
    """A search sees its own tenant's products only."""
    other = await tenants.add(operators, "Other", "other", [])
    for asked in ("START-100", "konvice", "bicycle"):
        assert await find_products(database, str(other.id), asked) == []


@pytest.mark.parametrize(
    ("asked", "sku"),
    [
        ("nejrychlejší tarif", "MAX-1000"),
        ("the fastest plan", "MAX-1000"),
        ("tarif Domov", "HOME-300"),
        ("Home", "HOME-300"),
        ("zesilovače wifi", "WIFI-EXT"),
        ("extender", "WIFI-EXT"),
        ("kolik stojí zřízení", "INSTALL"),
    ],
)
async def test_demo_products(database: Database, operators: Database, asked: str, sku: str) -> None:
    """The demo's tariffs are found in both languages."""
    made = await tenants.add(operators, "Example", "example", [])
    await demo.load_demo(operators, made.id)
    found = await find_products(database, str(made.id), asked)
    assert found[0].sku == sku


async def test_many(database: Database, operators: Database, tenant_id: UUID) -> None:
    """A tenant has at most 20 000 products; with so many, one is still found."""
    many = [
        Product(f"S{number}", f"Šroub M{number} ocelový", "Pozinkovaný šroub do dřeva i kovu.")
        for number in range(MOST_PRODUCTS - len(ROWS))
    ]
    await products.save(operators, tenant_id, many, source="test")
    started = time.perf_counter()
    found = await operators.all(
        products.queries.find_products, str(tenant_id), "", ["rychlovarna", "konvyce"], 0.4, 5
    )
    print(f"a search in {MOST_PRODUCTS} products: {time.perf_counter() - started:.3f} s")
    assert found[0]["sku"] == "K-7/b"
    with pytest.raises(TooManyProducts):
        await products.save(operators, tenant_id, [Product("one", "more")], source="test")
    assert await find_products(database, str(tenant_id), "one") == []


def test_demo_file() -> None:
    """The demo's products have a price each."""
    assert all(one.price for one in product_files.read(demo.HERE / "products.csv"))
