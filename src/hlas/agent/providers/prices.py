"""List prices of models, from the data in the package `genai-prices`; nothing is downloaded."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from hlas.agent.money.dollars import NANO

if TYPE_CHECKING:
    from genai_prices.types import ConditionalPrice, ModelPrice, TieredPrices


@dataclass(frozen=True, slots=True)
class ListPrice:
    """In nano-dollars for a million tokens."""

    input: int
    output: int


def find_list_price(base_url: str, model: str) -> ListPrice | None:
    """The highest price of a model at the provider of an address; None if it is not known.

    The model's name alone does not tell: another provider may ask for more, own hardware for
    nothing. A price for each request is not known either, because a reservation has none.
    """
    # More than a megabyte of data: loaded by those who need it.
    from genai_prices.data import providers  # noqa: PLC0415
    from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415

    # Not the package's own snapshot, which it can be told to download.
    snapshot = DataSnapshot(providers, from_auto_update=False)
    try:
        _, found = snapshot.find_provider_model(model, None, None, base_url)
    except LookupError:
        return None
    prices = _list_valid(found.prices, datetime.now(UTC))
    if any(price.requests_kcount for price in prices):
        return None
    if any(price.input_mtok is None or price.output_mtok is None for price in prices):
        return None
    return ListPrice(
        input=max(_highest(price.input_mtok) for price in prices),
        output=max(_highest(price.output_mtok, price.output_reasoning_mtok) for price in prices),
    )


def _list_valid(prices: "ModelPrice | list[ConditionalPrice]", now: datetime) -> "list[ModelPrice]":
    """The price of today; several where it depends on the time of the day."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint  # noqa: PLC0415

    if isinstance(prices, ModelPrice):
        return [prices]
    valid = [prices[0].prices]
    for one in prices[1:]:
        if isinstance(one.constraint, TimeOfDateConstraint):
            valid.append(one.prices)
        elif one.constraint is None or one.constraint.active(now):
            valid = [one.prices]
    return valid


def _highest(*prices: "Decimal | TieredPrices | None") -> int:
    """Of all tiers, in nano-dollars, rounded up."""
    amounts = [Decimal(0)]
    for price in prices:
        if isinstance(price, Decimal):
            amounts.append(price)
        elif price is not None:
            amounts += [price.base, *(tier.price for tier in price.tiers)]
    return int((max(amounts) * NANO).to_integral_value(ROUND_CEILING))
