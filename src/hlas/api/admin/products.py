"""A tenant's products."""

from typing import Annotated

from fastapi import Depends, Path, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from hlas.agent.tools import products
from hlas.agent.tools.products import (
    LONGEST_ATTRIBUTE,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_PRICE,
    LONGEST_SKU,
    LONGEST_URL,
    MOST_ATTRIBUTES,
    Product,
)
from hlas.api.admin.access import (
    Admin,
    Page,
    PathTenant,
    answer,
    answer_page,
    read_body,
    router,
)
from hlas.api.documentation import problems, takes
from hlas.errors import InvalidRequest
from hlas.knowledge.entries import Saved
from hlas.outbound.destinations import Destination
from hlas.payloads import one_line, storable

MOST_AT_ONCE = 500


def _line(longest: int, shortest: int = 0) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, min_length=shortest, max_length=longest)


class NewProduct(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sku: Annotated[str, _line(LONGEST_SKU, 1), AfterValidator(one_line)]
    name: Annotated[str, _line(LONGEST_NAME, 1), AfterValidator(one_line)]
    description: Annotated[str, _line(LONGEST_DESCRIPTION), AfterValidator(storable)] = ""
    price: Annotated[str, _line(LONGEST_PRICE), AfterValidator(one_line)] = ""
    url: Annotated[str, _line(LONGEST_URL), AfterValidator(one_line)] = ""
    attributes: dict[
        Annotated[str, _line(LONGEST_SKU, 1), AfterValidator(one_line)],
        Annotated[str, _line(LONGEST_ATTRIBUTE), AfterValidator(storable)],
    ] = Field(default_factory=dict, max_length=MOST_ATTRIBUTES)

    def product(self) -> Product:
        return Product(**self.model_dump())


class ProductImport(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    products: list[NewProduct] = Field(min_length=1, max_length=MOST_AT_ONCE)
    replace: bool = Field(default=False, description="remove the tenant's other products")


class Products(BaseModel):
    products: list[Product]
    next_cursor: str | None


class ProductsPage(Page):
    cursor: Annotated[str, AfterValidator(one_line)] | None = Field(
        None, max_length=LONGEST_SKU, description="a `next_cursor`"
    )


@router.get(
    "/tenants/{slug}/products",
    response_model=Products,
    summary="List a tenant's products",
    responses=problems(404, 422),
)
async def list_products(
    access: Admin, tenant: PathTenant, page: Annotated[ProductsPage, Query()]
) -> Response:
    found, cursor = await products.page_products(
        access.database, tenant.id, page.cursor, page.limit
    )
    return answer_page("products", found, cursor)


@router.put(
    "/tenants/{slug}/products",
    response_model=Saved,
    summary="Add or update products",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(ProductImport),
)
async def import_products(
    access: Admin,
    tenant: PathTenant,
    given: Annotated[ProductImport, Depends(read_body(ProductImport))],
) -> Response:
    """Those with the same sku are updated; all of them are saved or none."""
    _check(given.products)
    saved = await products.save(
        access.database,
        tenant.id,
        [one.product() for one in given.products],
        source="api",
        replace=given.replace,
        change=access.change,
    )
    return answer(saved)


def _check(given: list[NewProduct]) -> None:
    """A sku twice, or an address that no browser opens."""
    seen: set[str] = set()
    for position, one in enumerate(given):
        if one.sku in seen:
            raise InvalidRequest.at("body", "products", position, "sku", kind="sku_repeated")
        if one.url and Destination.parse(one.url) is None:
            raise InvalidRequest.at("body", "products", position, "url", kind="invalid_url")
        seen.add(one.sku)


@router.delete(
    "/tenants/{slug}/products/{sku:path}",
    status_code=204,
    summary="Remove a product",
    responses=problems(404, 413, 415, 422),
)
async def remove_product(
    access: Admin,
    tenant: PathTenant,
    sku: Annotated[str, Path(min_length=1, max_length=LONGEST_SKU), AfterValidator(one_line)],
) -> Response:
    await products.remove_products(access.database, tenant.id, [sku], access.change)
    return Response(status_code=204)
