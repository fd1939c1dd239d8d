"""The widget's script, for every website, and the demo page."""

import asyncio
import re
from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hlas import errors
from hlas.http.headers import page_headers
from hlas.web import assets
from hlas.web.assets import Asset

router = APIRouter(include_in_schema=False)

READ = ["GET", "HEAD"]
SHORT = "public, max-age=300"
FOREVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"

# Any page may load the script, including pages with cross-origin isolation (COEP).
FOR_EVERY_SITE = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
DEMO_POLICY = page_headers(form_action="'none'", img_src="'self'", font_src="")
DEMO_PAGES = {"/demo/cs": "index.cs.html", "/demo/en": "index.en.html"}
DEMO_FILES = {f"/demo/{name}": name for name in ("demo.css", "demo.js", "icon.svg")}
CZECH = re.compile(r"\s*(cs|sk)\b", re.IGNORECASE)


@router.api_route("/widget.js", methods=READ)
async def widget(request: Request) -> Response:
    """The stable address, which serves a new version within minutes after an upgrade."""
    asset = await asyncio.to_thread(assets.widget)
    return answer(request, asset, SHORT, FOR_EVERY_SITE)


@router.api_route("/widget/{version}/widget.js", methods=READ)
async def pinned_widget(request: Request, version: str) -> Response:
    """The immutable address of one version, for integrity attributes."""
    asset = await asyncio.to_thread(assets.widget)
    if version != asset.version:
        raise errors.NotFound
    return answer(request, asset, FOREVER, FOR_EVERY_SITE)


@router.api_route("/", methods=READ)
async def home() -> Response:
    return RedirectResponse("/demo", headers={"Cache-Control": REVALIDATE})


@router.api_route("/demo", methods=READ)
async def demo(request: Request) -> Response:
    """Czech if the browser's first language is Czech or Slovak, otherwise English."""
    czech = CZECH.match(request.headers.get("accept-language", ""))
    name = DEMO_PAGES["/demo/cs" if czech else "/demo/en"]
    page = answer(request, assets.demo(name), REVALIDATE, DEMO_POLICY)
    page.headers.add_vary_header("Accept-Language")
    return page


def answer(request: Request, asset: Asset, caching: str, headers: dict[str, str]) -> Response:
    """The asset in an encoding that the browser accepts, or 304."""
    zipped = accepts_gzip(request.headers.get("accept-encoding", ""))
    # A strong ETag identifies the exact bytes, so each encoding has its own.
    etag = f'"{asset.version}-gzip"' if zipped else f'"{asset.version}"'
    common = {
        **headers,
        "Cache-Control": caching,
        "ETag": etag,
        "Vary": "Accept-Encoding",
    }
    if matches(request.headers.get("if-none-match", ""), asset.version):
        return Response(status_code=304, headers=common)
    if zipped:
        common["Content-Encoding"] = "gzip"
    common["Content-Type"] = asset.media_type
    return Response(asset.compressed if zipped else asset.body, headers=common)


def accepts_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "").removeprefix("q=").strip("0.") != "" or not weight
    return False


def matches(header: str, version: str) -> bool:
    """Whether If-None-Match has an ETag of this asset, weak or strong, in either encoding."""
    if header.strip() == "*":
        return True
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")}
    return bool(tags & {version, f"{version}-gzip"})


def _serve_demo(name: str, headers: dict[str, str]) -> Callable[[Request], Response]:
    def serve(request: Request) -> Response:
        return answer(request, assets.demo(name), REVALIDATE, headers)

    return serve


for _path, _name in DEMO_PAGES.items():
    router.api_route(_path, methods=READ)(_serve_demo(_name, DEMO_POLICY))
for _path, _name in DEMO_FILES.items():
    router.api_route(_path, methods=READ)(_serve_demo(_name, {}))
