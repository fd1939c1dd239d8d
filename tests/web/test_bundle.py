"""The widget's modules are bundled into one script, or bundling fails with a clear error."""

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hlas.web import assets, bundle
from hlas.web.bundle import BundleError

WIDGET = assets.HERE / "widget"


def modules(directory: Path, **sources: str) -> Path:
    for name, source in sources.items():
        (directory / f"{name}.js").write_text(source)
    return directory / "main.js"


def test_modules_follow_what_they_import_and_come_once(tmp_path: Path) -> None:
    """A module comes after its imports, and only once."""
    entry = modules(
        tmp_path,
        main='import { left } from "./left.js";\nimport { right } from "./right.js";\nleft(1);\n',
        left='import { base } from "./base.js";\nexport const left = () => base;\n',
        right='import { base } from "./base.js";\nexport function right() { return base; }\n',
        base="export let base = 1;\n",
    )
    script = bundle.bundle(entry)
    places = [script.index(text) for text in ("let base", "const left", "function right", "left(1")]
    assert places == sorted(places)
    assert script.count("let base") == 1
    assert "import" not in script
    assert "export" not in script


def test_a_style_sheet_becomes_a_string(tmp_path: Path) -> None:
    """Quotes and backslashes of a style sheet are preserved."""
    (tmp_path / "a.css").write_text('a::before { content: "\\2014 \\"x"; }')
    entry = modules(tmp_path, main='import css from "./a.css";\nconsole.log(css);\n')
    assert '\\"' in bundle.bundle(entry)


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        ({"main": 'import * as all from "./other.js";\n', "other": ""}, "main.js"),
        ({"main": "export default 1;\n"}, "main.js"),
        (
            {
                "main": 'import { a } from "./other.js";\nconst twice = a;\n',
                "other": "export const a = 1;\nconst twice = 2;\n",
            },
            "twice",
        ),
    ],
    ids=["star import", "default export", "equal names"],
)
def test_unsupported_syntax_is_an_error(
    tmp_path: Path, sources: dict[str, str], reason: str
) -> None:
    """Syntax that the bundler does not support is an error, not a broken script."""
    with pytest.raises(BundleError, match=reason):
        bundle.bundle(modules(tmp_path, **sources))


def test_the_full_chat_weighs_at_most_12_kilobytes() -> None:
    """The compressed script is at most 12 kB."""
    if not bundle.has_minifier():
        pytest.skip("the minifier has no build for this machine")
    weight = len(assets.widget().compressed)
    print(f"widget: {len(assets.widget().body)} bytes, {weight} gzip")
    assert weight <= 12_000


def test_the_script_is_the_same_wherever_it_is_built() -> None:
    """Every process builds equal bytes; integrity hashes behind a load balancer rely on it."""
    code = "from hlas.web import assets; print(assets.widget().integrity)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == assets.widget().integrity


def test_bundled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second start reads the bundle of the first; changed sources are bundled again."""
    widget = tmp_path / "widget"
    shutil.copytree(WIDGET, widget)
    monkeypatch.setattr(bundle, "WIDGET", widget)
    monkeypatch.setattr(bundle, "BUILT", tmp_path / "built")
    script = bundle.widget_script()
    (built,) = (tmp_path / "built").iterdir()
    built.write_text("bundled before")
    assert bundle.widget_script() == "bundled before"
    (widget / "dom.js").write_text((widget / "dom.js").read_text() + "\nconst added = 1;\n")
    assert bundle.widget_script() not in {script, "bundled before"}
    assert len(list((tmp_path / "built").iterdir())) == 1


def test_bundled_in_a_read_only_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a read-only checkout the script is the same."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(bundle, "BUILT", blocked / "built")
    assert bundle.widget_script() == assets.widget().body.decode()


def test_without_the_minifier_the_script_is_served_as_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundle, "has_minifier", lambda: False)
    script = bundle.bundle(WIDGET / "widget.js")
    assert bundle.minify("application/javascript", script) == script
    assert ":host {" in script


def test_no_module_parses_markup_or_evaluates_text() -> None:
    """No module uses what a strict content policy forbids."""
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    for file in WIDGET.glob("*.js"):
        source = file.read_text()
        assert not [word for word in forbidden if word in source], file.name


def test_compressed_and_plain_are_the_same() -> None:
    asset = assets.widget()
    assert gzip.decompress(asset.compressed) == asset.body
