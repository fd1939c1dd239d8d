"""The console: pages for administrators. All are on one router, which requires a sign-in."""

from fastapi import APIRouter, Response

from hlas import errors
from hlas.api.console import (
    agent,
    conversations,
    entrance,
    imports,
    knowledge,
    looks,
    models,
    overview,
    records,
    spend,
    tenants,
    tools,
    unanswered,
    visitor_keys,
)
from hlas.api.console.access import router as guarded


# Must be the last route: an unknown address of the console answers with a page, too.
@guarded.get("/{rest:path}")
async def refuse_unknown() -> Response:
    raise errors.NotFound


router = APIRouter(include_in_schema=False)
router.include_router(entrance.router)
router.include_router(guarded)

__all__ = [
    "agent",
    "conversations",
    "imports",
    "knowledge",
    "looks",
    "models",
    "overview",
    "records",
    "router",
    "spend",
    "tenants",
    "tools",
    "unanswered",
    "visitor_keys",
]
