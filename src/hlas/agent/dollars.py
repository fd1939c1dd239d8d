"""Amounts of US dollars as people write them, and as nano-dollars, which are exact."""

import re
from decimal import Decimal

NANO = 1_000_000_000

_AMOUNT = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?", re.ASCII)


def parse(text: str, *, most: int) -> int:
    """Nano-dollars from text such as 2.50."""
    if not _AMOUNT.fullmatch(text) or Decimal(text) > most:
        raise ValueError(f"write dollars from 0 to {most}, such as 2.50, with at most 6 decimals")
    return int(Decimal(text) * NANO)


def show(amount: int) -> str:
    """Dollars with as many decimals as they need, and at least two."""
    whole, _, rest = f"{Decimal(amount) / NANO:.9f}".partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"
