"""What a check of the doctor found, and how to mend it."""

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    status: Status
    found: str
    mend: str = ""

    def told(self) -> dict[str, str]:
        return asdict(self)
