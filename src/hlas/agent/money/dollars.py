"""US dollars as people write them, and the nano-dollars that the database has."""

import re
from decimal import ROUND_HALF_UP, Decimal

NANO = 1_000_000_000
# At most 9 digits and 9 decimals: below a billion dollars, exact in nano-dollars.
PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"

_AMOUNT = re.compile(PATTERN)


def parse(text: str) -> int:
    """Nano-dollars of an amount such as 12.50; a ValueError if it is not one."""
    if not _AMOUNT.fullmatch(text):
        raise ValueError("write US dollars such as 5 or 0.25, with at most 9 decimals")
    return int(Decimal(text) * NANO)


def show(nano: int) -> str:
    """The exact amount, which `parse` reads back."""
    whole, part = divmod(nano, NANO)
    return f"{whole}.{part:09}".rstrip("0").rstrip(".")


def describe(nano: int) -> str:
    """Rounded for people: to cents, and below a dollar to a hundredth of a cent."""
    if 0 < nano < NANO // 10_000:
        return "under $0.0001"
    step = Decimal("0.01") if nano >= NANO or nano % (NANO // 100) == 0 else Decimal("0.0001")
    return f"${(Decimal(nano) / NANO).quantize(step, ROUND_HALF_UP):,}"
