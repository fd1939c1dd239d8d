"""Language models that the operator has added: where they are, what they cost."""

from dataclasses import dataclass
from typing import Self

from hlas.store.db import Row
from hlas.store.vault import Vault

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Model:
    """A model behind an OpenAI-compatible address; prices in nano-dollars for a million tokens."""

    name: str
    base_url: str
    model: str
    # The provider's key in clear; never logged, stored or shown.
    key: str
    input_price: int
    output_price: int

    @classmethod
    def from_row(cls, row: Row, vault: Vault) -> Self:
        sealed = row["key"]
        return cls(
            name=row["name"],
            base_url=row["base_url"],
            model=row["model"],
            key=vault.open(sealed, purpose_of(row["name"])) if sealed else "",
            input_price=row["input_price"],
            output_price=row["output_price"],
        )

    def __repr__(self) -> str:
        return f"Model({self.name})"

    def price(self, input_tokens: int, output_tokens: int) -> int:
        """The cost in nano-dollars, rounded up."""
        total = input_tokens * self.input_price + output_tokens * self.output_price
        return -(-total // MILLION)


def purpose_of(name: str) -> str:
    """What a model's sealed key is bound to."""
    return f"model {name}"
