"""The training data: organisations with their entries and questions about them."""

from dataclasses import dataclass
from pathlib import Path

import orjson

from hlas.knowledge.entries import Entry
from hlas.knowledge.language import Language

FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Case:
    """A question and the entries that answer it; none: it is not covered."""

    text: str
    language: Language
    kind: str
    expected: tuple[str, ...]
    previous: str | None

    @property
    def is_covered(self) -> bool:
        return bool(self.expected)


@dataclass(frozen=True, slots=True)
class Organisation:
    name: str
    language: Language
    entries: dict[str, Entry]
    cases: tuple[Case, ...]


def read_organisation(folder: Path, name: str) -> Organisation:
    entries = {line["id"]: _read_entry(line) for line in _read(folder / f"{name}.entries.jsonl")}
    lines = _read(folder / f"{name}.jsonl")
    return Organisation(name, _read_language(lines[0]), entries, tuple(map(_read_case, lines)))


def read_all(folder: Path = FOLDER) -> list[Organisation]:
    names = sorted(path.name.removesuffix(".entries.jsonl") for path in folder.glob("*.entries.*"))
    return [read_organisation(folder, name) for name in names]


def _read(path: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _read_language(line: dict[str, str]) -> Language:
    return "cs" if line["lang"] == "cs" else "en"


def _read_entry(line: dict[str, str]) -> Entry:
    keywords = tuple(filter(None, (one.strip() for one in line["keywords"].split(","))))
    return Entry(line["question"], line["answer"], keywords)


def _read_case(line: dict[str, str]) -> Case:
    names = (line.get("expected_entry"), line.get("also_entry"))
    return Case(
        line["question"],
        _read_language(line),
        line["kind"],
        tuple(filter(None, names)),
        (line.get("context") or [None])[-1],
    )
