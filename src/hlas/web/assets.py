"""The files for browsers, minified, compressed and hashed once."""

import gzip
import hashlib
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from hlas.web.bundle import widget_script

HERE = Path(__file__).parent
JAVASCRIPT = "text/javascript; charset=utf-8"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": JAVASCRIPT,
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    body: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    @cached_property
    def version(self) -> str:
        """Part of the immutable address, and the ETag: a hash, so it is the same on every host."""
        return hashlib.sha256(self.body).hexdigest()[:16]

    @cached_property
    def integrity(self) -> str:
        """For a script tag's integrity attribute."""
        return "sha384-" + b64encode(hashlib.sha384(self.body).digest()).decode()


@cache
def widget() -> Asset:
    return Asset(widget_script().encode(), JAVASCRIPT)


@cache
def demo(name: str) -> Asset:
    file = HERE / "demo" / name
    return Asset(file.read_bytes(), MEDIA_TYPES[file.suffix])


@cache
def console(name: str) -> Asset:
    file = HERE / "console" / name
    return Asset(file.read_bytes(), MEDIA_TYPES[file.suffix])


@cache
def widget_module(name: str) -> Asset:
    """One of the widget's modules as it is, for the console."""
    return Asset((HERE / "widget" / name).read_bytes(), JAVASCRIPT)


def widget_path(*, pinned: bool = False) -> str:
    """The path of the script: the stable one, or the immutable one of this version."""
    return f"/widget/{widget().version}/widget.js" if pinned else "/widget.js"


def embed_line(base_url: str, *, pinned: bool = False) -> str:
    """The script tag for a site owner; if pinned, browsers refuse any other script."""
    source = f'src="{base_url.rstrip("/")}{widget_path(pinned=pinned)}"'
    proof = f' integrity="{widget().integrity}" crossorigin="anonymous"' if pinned else ""
    return f'<script type="module" {source}{proof}></script>'
