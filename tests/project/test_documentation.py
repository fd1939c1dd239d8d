"""What users can set, meet or read is documented: an omission is a failing test."""

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


@pytest.mark.parametrize("name", [name.upper() for name in Settings.model_fields])
def test_setting(name: str) -> None:
    """Every setting is described, and stands in .env.example and in README."""
    assert Settings.model_fields[name.lower()].description
    assert re.search(rf"^{name}=", read(ROOT / ".env.example"), re.MULTILINE)
    assert re.search(rf"\b{name}\b", read(ROOT / "README.md"))


def test_env_example() -> None:
    """.env.example holds the defaults and nothing that is no setting."""
    lines = re.findall(r"^([A-Z_]+)=(.*)$", read(ROOT / ".env.example"), re.MULTILINE)
    assert {name for name, _ in lines} == {name.upper() for name in Settings.model_fields}
    defaults = Settings(_env_file=None)
    for name, value in lines:
        default = getattr(defaults, name.lower())
        if isinstance(default, bool):
            default = str(default)
        shown = str(default) if default else ""
        assert value.lower() == shown.lower(), name


def every_error() -> list[type[errors.HlasError]]:
    kinds = [errors.HlasError]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one not in kinds]
    return [kind for kind in kinds if kind is not errors.AuthenticationError]


def test_error_codes() -> None:
    """Every error code is explained somewhere in docs; no two errors share one."""
    text = all_docs()
    kinds = every_error()
    codes = [kind.code for kind in kinds if "code" in vars(kind)]
    missing = [code for code in codes if not re.search(rf"`{code}`", text)]
    assert missing == []
    assert len(codes) == len(set(codes))


def test_error_sentences() -> None:
    """An error's docstring is what people read: one sentence, with an end."""
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


def logged(tree: ast.Module) -> set[str]:
    """The event names of a module: literal first arguments of calls that log."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _logs(node.func) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(str(first.value))
    return found


def test_log_events() -> None:
    """Every event that is logged stands in the observability document, and no other does."""
    events: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        events |= logged(ast.parse(read(path)))
    table = read(OBSERVABILITY).partition("## Log events")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `([a-z_]+)`", table, re.MULTILINE))
    assert len(events) > 10
    assert documented == events


def test_metrics() -> None:
    """Every metric stands in the observability document."""
    text = read(OBSERVABILITY)
    names = {metric.name for metric in metrics.Metrics().registry.collect() if metric.documentation}
    assert len(names) >= 8
    missing = [name for name in names if f"`{name}" not in text]
    assert missing == []


def test_links() -> None:
    """Links between documents lead somewhere."""
    broken: list[str] = []
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(path))
        broken += [
            f"{path.name}: {target}"
            for target in targets
            if "://" not in target and not (path.parent / target).exists()
        ]
    assert broken == []


@pytest.mark.parametrize("number", range(1, 14))
def test_stages(number: int) -> None:
    """Every stage has its document and its tasks."""
    assert len(list(DOCS.glob(f"stages/{number:02}-*.md"))) == 1
    assert len(list(DOCS.glob(f"tasks/{number:02}-*-codex-tasks.md"))) == 1
