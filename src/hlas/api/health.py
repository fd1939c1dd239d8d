"""For load balancers, orchestrators and Prometheus."""

from typing import Any

import asyncpg
from fastapi import APIRouter, Request, Response

from hlas import errors, migrations, probes
from hlas.api.documentation import problems
from hlas.services import Services

router = APIRouter(tags=["operations"])

_HEAD = migrations.head()


@router.get("/health", summary="Whether the process runs")
async def health(request: Request) -> dict[str, Any]:
    services: Services = request.app.state.services
    tokens = request.headers.getlist("authorization")
    if not tokens or not probes.is_ours(services.tokens.secrets(), tokens):
        return {"status": "ok"}
    # `hlas doctor` asks as whom it is limited.
    return {"status": "ok", "seen": services.gate.seen(request.scope)}


@router.get("/ready", summary="Whether it can serve", responses=problems(503))
async def ready(request: Request) -> dict[str, str]:
    """The database answers and its schema is the one this code needs."""
    services: Services = request.app.state.services
    try:
        row = await services.database.one("select version_num from alembic_version")
    except asyncpg.PostgresError:
        row = None  # a database that was never migrated, or whose rights were taken away
    if row is None or row["version_num"] != _HEAD:
        raise errors.Unavailable(retry_after=5)
    return {"status": "ok"}


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    services: Services = request.app.state.services
    return Response(services.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
