"""Bundles the widget's modules into one script without JavaScript tools."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

WIDGET = Path(__file__).parent / "widget"
BUILT = Path(__file__).parent / "built"

IMPORT = re.compile(
    r'^import (?P<names>\{[^}]*\}|\w+) from "\./(?P<file>[\w.-]+)";\n', re.MULTILINE
)
EXPORT = re.compile(r"^export (?=const |let |class |function |async function )", re.MULTILINE)
TOP_LEVEL = re.compile(r"^(?:const|let|class|(?:async )?function) (\w+)", re.MULTILINE)
MODULE_SYNTAX = re.compile(r"^(?:import|export)\b(?!\.meta)", re.MULTILINE)


class BundleError(Exception):
    """The modules use syntax that the bundler does not support."""


def widget_script() -> str:
    """The bundled widget, from the wheel, or built on first use in a checkout."""
    try:
        return _output_path().read_text(encoding="utf-8")
    except OSError:
        pass  # not built yet
    try:
        return build_widget().read_text(encoding="utf-8")
    except OSError:
        return _minify_widget()  # a read-only checkout: built again on each start


def build_widget() -> Path:
    """Bundle the widget into a file whose name contains the hash of its sources."""
    built = _output_path()
    script = _minify_widget()
    BUILT.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=BUILT, delete=False, encoding="utf-8") as new:
        new.write(script)
    os.chmod(new.name, 0o644)  # noqa: PTH101  # public, as the package's other files
    Path(new.name).rename(built)
    for stale in set(BUILT.glob("widget.*.js")) - {built}:
        stale.unlink(missing_ok=True)
    return built


def _output_path() -> Path:
    digest = hashlib.sha256()
    for source in sorted(WIDGET.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return BUILT / f"widget.{digest.hexdigest()[:16]}.js"


def _minify_widget() -> str:
    return minify("application/javascript", bundle(WIDGET / "widget.js"))


def bundle(entry: Path) -> str:
    """Join all modules that the entry needs, each after its imports, in one function.

    Inside a function the minifier can shorten every name.
    """
    parts = list(_modules(entry, set()))
    seen: set[str] = set()
    for name in TOP_LEVEL.findall("".join(parts)):
        if name in seen:
            raise BundleError(f"two modules define {name}")
        seen.add(name)
    return "(() => {\n" + "\n".join(parts) + "\n})();\n"


def _modules(file: Path, done: set[Path]) -> Iterator[str]:
    done.add(file)
    source = file.read_text(encoding="utf-8")
    for found in IMPORT.finditer(source):
        dependency = file.parent / found["file"]
        if dependency in done:
            continue
        if dependency.suffix == ".css":
            done.add(dependency)
            style = minify("text/css", dependency.read_text(encoding="utf-8"))
            yield f"const {found['names']} = {json.dumps(style, ensure_ascii=False)};\n"
        else:
            yield from _modules(dependency, done)
    source = EXPORT.sub("", IMPORT.sub("", source))
    if MODULE_SYNTAX.search(source):
        raise BundleError(f"{file.name}: only plain named imports and exports are supported")
    yield source


def has_minifier() -> bool:
    return find_spec("minify") is not None


def minify(media_type: str, source: str) -> str:
    """Minify the source; return it unchanged if the minifier has no build for this machine."""
    if not has_minifier():
        return source
    # In a separate process, because the minifier's Go runtime must not stay in a server.
    done = subprocess.run(  # noqa: S603 - our own interpreter, constant arguments
        [sys.executable, "-c", _MINIFY, media_type],
        input=source.encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.decode()


_MINIFY = """
import sys, minify
source = sys.stdin.buffer.read().decode()
sys.stdout.buffer.write(minify.string(sys.argv[1], source).encode())
"""
