"""Products from CSV: sku, name, description, price, url; other columns become attributes."""

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from hlas.agent.tools.products import (
    LONGEST_ATTRIBUTE,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_PRICE,
    LONGEST_SKU,
    LONGEST_URL,
    MOST_ATTRIBUTES,
    MOST_PRODUCTS,
    Product,
    ProductError,
)
from hlas.outbound.destinations import Destination

COLUMNS = {
    "sku": LONGEST_SKU,
    "name": LONGEST_NAME,
    "description": LONGEST_DESCRIPTION,
    "price": LONGEST_PRICE,
    "url": LONGEST_URL,
}
LARGEST_FILE = 100 * 2**20


def read(path: Path) -> list[Product]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ProductError(f"{path}: larger than {LARGEST_FILE // 2**20} MB")
        data = path.read_bytes()
    except OSError as error:
        raise ProductError(f"{path}: {error.strerror or error}") from None
    return parse(path.name, data)


def parse(name: str, data: bytes) -> list[Product]:
    """Return every product, or raise with the line of the first problem."""
    products: dict[str, Product] = {}
    lines: dict[str, int] = {}
    for line, cells in _read_rows(name, _decode(name, data)):
        product = _make_product(cells)
        problem = find_problem(product)
        if product.sku in lines:
            problem = f"the same sku as on line {lines[product.sku]}"
        elif len(products) >= MOST_PRODUCTS:
            problem = f"more than {MOST_PRODUCTS} products"
        if problem:
            raise ProductError(f"{name}, line {line}: {problem}")
        products[product.sku] = product
        lines[product.sku] = line
    if not products:
        raise ProductError(f"{name}: no products; it has no rows under its header")
    return list(products.values())


def find_problem(product: Product) -> str | None:
    """What is wrong with a product, as a sentence without its subject."""
    texts = asdict(product)
    too_long = (column for column, longest in COLUMNS.items() if len(texts[column]) > longest)
    what = None
    if not product.sku or not product.name:
        what = "the sku or the name is empty"
    elif not product.sku.isprintable() or not product.name.isprintable():
        what = "the sku or the name has a control character"
    elif column := next(too_long, None):
        what = f"the {column} is longer than {COLUMNS[column]} characters"
    elif product.url and Destination.parse(product.url) is None:
        what = "the url is not an http or https address"
    elif len(product.attributes) > MOST_ATTRIBUTES:
        what = f"there are more than {MOST_ATTRIBUTES} other columns"
    elif any(len(text) > LONGEST_ATTRIBUTE for text in product.attributes.values()):
        what = f"a cell of another column is longer than {LONGEST_ATTRIBUTE} characters"
    return what


def _decode(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProductError(f"{name}, line {line}: not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ProductError(f"{name}, line {line}: a NUL character; is this a text file?")
    return text


def _read_rows(name: str, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The line and the cells of each row that is not empty."""
    head = text.partition("\n")[0]
    # Spreadsheets separate cells by semicolons in locales with a decimal comma, as in Czech.
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = [column.strip().lower() for column in next(reader, [])]
        _check_header(name, columns)
        start = reader.line_num + 1
        for row in reader:
            if any(cell.strip() for cell in row):
                yield start, _name_cells(name, start, columns, row)
            start = reader.line_num + 1
    except csv.Error as error:
        raise ProductError(f"{name}, line {reader.line_num}: {error}") from None


def _check_header(name: str, columns: list[str]) -> None:
    if not {"sku", "name"} <= set(columns):
        raise ProductError(f"{name}, line 1: the header must name sku and name")
    if len(set(columns)) < len(columns):
        raise ProductError(f"{name}, line 1: a column twice")
    if "" in columns:
        raise ProductError(f"{name}, line 1: a column without a name")


def _name_cells(name: str, line: int, columns: list[str], row: list[str]) -> dict[str, str]:
    if len(row) != len(columns):
        raise ProductError(
            f"{name}, line {line}: {len(row)} cells where the header has {len(columns)}; "
            "put quotes around text with separators"
        )
    return dict(zip(columns, (cell.strip() for cell in row), strict=True))


def _make_product(cells: dict[str, str]) -> Product:
    known = {column: cells.get(column, "") for column in COLUMNS}
    attributes = {column: text for column, text in cells.items() if column not in COLUMNS and text}
    return Product(**known, attributes=attributes)
