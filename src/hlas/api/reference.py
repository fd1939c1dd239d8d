"""The API's reference at /docs: Swagger UI from our own host, under a strict content policy."""

from functools import cache, lru_cache
from importlib import resources

import orjson
from fastapi import APIRouter, FastAPI, Request, Response

from hlas import errors
from hlas.api.reads import LIMITED
from hlas.http.headers import page_headers

router = APIRouter(include_in_schema=False, dependencies=LIMITED)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Hlas API</title>
<link rel="icon" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
START = """SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#reference", deepLinking: true, tryItOutEnabled: true,
});
"""
KINDS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    return Response(_document(request.app), media_type="application/json")


@lru_cache(maxsize=1)
def _document(app: FastAPI) -> bytes:
    return orjson.dumps(app.openapi())


@router.get("/docs")
async def reference() -> Response:
    # Swagger UI builds its page with innerHTML, so trusted types stay off on this one page.
    policy = page_headers(require_trusted_types_for="", style_src="'self' 'unsafe-inline'")
    return Response(PAGE, headers=policy, media_type="text/html")


@router.get("/docs/{name}")
async def asset(name: str) -> Response:
    if name == "start.js":
        return Response(START, media_type="text/javascript")
    if name not in KINDS:
        raise errors.NotFound
    return Response(
        _read(name), media_type=KINDS[name], headers={"Cache-Control": "public, max-age=86400"}
    )


@cache
def _read(name: str) -> bytes:
    return (resources.files("fastapi_swagger") / "resources" / name).read_bytes()
