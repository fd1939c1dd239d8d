"""The server uses uvicorn's internals: this fails with a clear message when they change."""

import inspect
import tomllib
from pathlib import Path

import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ROOT = Path(__file__).parents[2]

# Non-public members of uvicorn that hlas/http/server.py and hlas/http/lane.py use.
STATE = ("app_state", "cycle", "flow", "pipeline", "server_state", "tasks", "connections")
METHODS = {
    "on_message_begin": ["self"],
    "on_headers_complete": ["self"],
    "on_body": ["self", "body"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "_start_asgi_task": ["self", "cycle", "app"],
}
ADVICE = (
    "uvicorn has changed: compare its protocols/http/httptools_impl.py with what "
    "src/hlas/http/server.py and lane.py use of it, then move the pin in pyproject.toml"
)


def test_version() -> None:
    """Its version is pinned to the minor version whose internals were reviewed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (pin,) = (one for one in project["dependencies"] if one.startswith("uvicorn"))
    assert pin == "uvicorn>=0.54,<0.55"
    assert uvicorn.__version__.startswith("0.54."), ADVICE


def test_internals() -> None:
    """Everything that we override or read still exists."""
    source = Path(httptools_impl.__file__).read_text("utf-8")
    assert [name for name in STATE if f"self.{name}" not in source] == [], ADVICE
    for name, parameters in METHODS.items():
        found = list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters)
        assert found == parameters, f"{name}: {ADVICE}"
    for name in ("response_complete", "keep_alive", "disconnected", "message_event"):
        assert f"self.{name}" in source, ADVICE
