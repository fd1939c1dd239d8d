"""What a check of the doctor found, and how to fix it."""

from dataclasses import asdict, dataclass, replace
from typing import Literal, Self

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    status: Status
    found: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    def printable(self) -> Self:
        """Escaped for a terminal, because a finding may quote an untrusted page."""
        return replace(self, found=_printable(self.found), fix=_printable(self.fix))


def _printable(text: str) -> str:
    """Control characters, escape codes, line breaks and bidirectional overrides become `?`."""
    return "".join(one if one.isprintable() else "?" for one in text)
