"""The documents are complete and match the code."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import hlas
from hlas import errors
from hlas.observe import metrics
from hlas.settings import Settings

ROOT = Path(__file__).parents[2]
SOURCE = Path(hlas.__file__).parent
DOCS = ROOT / "docs"
OBSERVABILITY = DOCS / "stages" / "10-observability.md"
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def read(path: Path) -> str:
    return path.read_text("utf-8")


def all_docs() -> str:
    return "\n".join(read(path) for path in sorted(DOCS.rglob("*.md")))


def default_of(name: str) -> str:
    """A setting's default, as .env.example and docs/configuration.md show it."""
    value = getattr(Settings(_env_file=None), name)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value else ""


@pytest.mark.parametrize("name", Settings.model_fields)
def test_setting(name: str) -> None:
    """Every setting has a description; docs/configuration.md shows it with the true default."""
    description = Settings.model_fields[name].description
    assert description
    default = f"`{default_of(name)}`" if default_of(name) else "empty"
    row = f"| `{name.upper()}` | {default} | {description} |"
    assert row in read(DOCS / "configuration.md").splitlines()


def test_env_example() -> None:
    """.env.example has every setting once, with its default, and no other variable."""
    lines = re.findall(r"^([A-Z_]+)=(.*)$", read(ROOT / ".env.example"), re.MULTILINE)
    names = [name.lower() for name, _ in lines]
    assert sorted(names) == sorted(Settings.model_fields)
    assert dict(lines) == {name.upper(): default_of(name) for name in names}


def every_error() -> list[type[errors.HlasError]]:
    kinds = [errors.HlasError]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one not in kinds]
    return [kind for kind in kinds if kind is not errors.AuthenticationError]


def test_error_codes() -> None:
    """Every error code is documented, and no two errors share one."""
    text = all_docs()
    kinds = every_error()
    codes = [kind.code for kind in kinds if "code" in vars(kind)]
    missing = [code for code in codes if not re.search(rf"`{code}`", text)]
    assert missing == []
    assert len(codes) == len(set(codes))


def test_error_sentences() -> None:
    """An error's docstring is the message users read: one complete sentence."""
    for kind in every_error():
        sentence = " ".join((inspect.getdoc(kind) or "").split())
        assert sentence.endswith("."), kind
        assert 10 < len(sentence) < 200, kind


def _logs(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in {*LEVELS, "report"}
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value
    name = owner.id if isinstance(owner, ast.Name) else ""
    return function.attr == "_warn_once" or (
        name in {"telemetry", "log", "_logger"} and function.attr in LEVELS
    )


def find_events(tree: ast.Module) -> set[str]:
    """Event names of a module: literal first arguments of logging calls."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _logs(node.func) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(str(first.value))
    return found


def test_log_events() -> None:
    """The observability document lists exactly the events that are logged."""
    events: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        events |= find_events(ast.parse(read(path)))
    table = read(OBSERVABILITY).partition("## Log events")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `([a-z_]+)`", table, re.MULTILINE))
    assert len(events) > 10
    assert documented == events


def test_metrics() -> None:
    """Every metric is listed in the observability document."""
    text = read(OBSERVABILITY)
    names = {metric.name for metric in metrics.Metrics().registry.collect() if metric.documentation}
    assert len(names) >= 8
    missing = [name for name in names if f"`{name}" not in text]
    assert missing == []


def test_no_placeholders() -> None:
    """No document has a line that was to be filled in."""
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        assert not re.search(r"^@@\w+@@$", read(path), re.MULTILINE), path


def test_links() -> None:
    """Every link between documents has a target."""
    broken: list[str] = []
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(path))
        broken += [
            f"{path.name}: {target}"
            for target in targets
            if "://" not in target and not (path.parent / target).exists()
        ]
    assert broken == []


@pytest.mark.parametrize("number", range(1, 17))
def test_stages(number: int) -> None:
    """Every stage has its document and its tasks."""
    assert len(list(DOCS.glob(f"stages/{number:02}-*.md"))) == 1
    assert len(list(DOCS.glob(f"tasks/{number:02}-*-codex-tasks.md"))) == 1
    (stage,) = DOCS.glob(f"stages/{number:02}-*.md")
    (tasks,) = DOCS.glob(f"tasks/{number:02}-*-codex-tasks.md")
    assert f"(../tasks/{tasks.name})" in read(stage)


def test_edge_cases() -> None:
    """The docstring of a test names each edge case that is listed as implemented."""
    page = read(DOCS / "edge-cases.md")
    stated = re.search(r"\b1 to (\d+) are implemented and tested", page)
    assert stated
    numbers = re.findall(r"^(\d+a?)\. ", page, re.MULTILINE)
    implemented = [one for one in numbers if int(one.rstrip("a")) <= int(stated[1])]
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = " ".join(read(path).split())
        for found in re.findall(r"[Ee]dge cases? ((?:\d+a?(?:, | and |-)?)+)", text):
            named.update(re.findall(r"\d+a?", found))
            for first, last in re.findall(r"(\d+)-(\d+)", found):
                named.update(map(str, range(int(first), int(last) + 1)))
    assert [one for one in implemented if one not in named] == []


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def test_tasks_are_linked_from_their_stage_only() -> None:
    """Only the document of a stage links to its tasks."""
    linking = [path for path in documents() if re.search(r"\btasks/", read(path))]
    assert {path.parent for path in linking} == {DOCS / "stages"}


def measured_rows(page: Path) -> dict[str, list[str]]:
    """The rows of the generated table of a page: label to measured, target and verdict."""
    text = read(page).partition("<!-- measured -->")[2].partition("<!-- /measured -->")[0]
    rows = [
        [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {what: cells for what, *cells in rows[2:]}


def test_readme_quotes_the_benchmark() -> None:
    """README quotes rows of the benchmark with the same figures, targets and verdicts."""
    quoted, measured = measured_rows(ROOT / "README.md"), measured_rows(DOCS / "benchmark.md")
    assert len(quoted) >= 3
    assert quoted == {what: measured.get(what) for what in quoted}


def test_readme_has_no_other_figures() -> None:
    """README has no benchmark figure outside the quoted table, where it would become stale."""
    before, _, rest = read(ROOT / "README.md").partition("<!-- measured -->")
    after = rest.partition("<!-- /measured -->")[2]
    assert re.findall(r"\b\d[\d.,]*(?:x|/s)\b|\bmissed\b|\bmet\b", before + after) == []


# A path in a document is relative to one of these.
PLACES = (ROOT, SOURCE, SOURCE / "store" / "migrations" / "versions", ROOT / "tests")
PACKAGES = {path.name for place in PLACES for path in place.iterdir() if path.is_dir()}


def named_paths(text: str) -> set[str]:
    """Paths in backticks or code blocks: Python, SQL and Lua files, and paths in our folders."""
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    found = set(re.findall(r"(?<![\w./<>-])[\w.*-]+(?:/[\w.*-]+)*/?", code))
    return {
        path
        for path in found
        if re.search(r"\w\.(?:py|sql|lua)$", path)
        or ("/" in path and path.split("/")[0] in PACKAGES)
    }


@pytest.mark.parametrize("page", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """A file named in a document exists, relative to the project, src/hlas or tests."""
    missing = {
        path
        for path in named_paths(read(page))
        if not any(next(iter(place.glob(path)), None) for place in PLACES)
    }
    assert missing == set()


def test_named_tests_exist() -> None:
    """Every test that a document names exists."""
    files = [*(ROOT / "tests").rglob("test_*.py")]
    known = {path.stem for path in files}
    for path in files:
        known |= set(re.findall(r"def (test_\w+)", read(path)))
    named = {
        name for page in documents() for name in re.findall(r"(?:`|::)(test_\w+)`", read(page))
    }
    assert len(named) > 50
    assert named - known == set()
