"""The console: pages for administrators. One router, and no way onto it without signing in."""

from fastapi import APIRouter, Response

from hlas import errors
from hlas.api.console import (
    conversations,
    entrance,
    knowledge,
    looks,
    overview,
    records,
    tenants,
    visitor_keys,
)
from hlas.api.console.access import router as guarded


# Last of all: an address of the console that leads nowhere still gets a page.
@guarded.get("/{rest:path}")
async def nothing_here() -> Response:
    raise errors.NotFound


router = APIRouter(include_in_schema=False)
router.include_router(entrance.router)
router.include_router(guarded)

__all__ = [
    "conversations",
    "knowledge",
    "looks",
    "overview",
    "records",
    "router",
    "tenants",
    "visitor_keys",
]
