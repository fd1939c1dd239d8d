"""Routes for load balancers, orchestrators and Prometheus."""

from fastapi import APIRouter, Request, Response

from hlas import errors
from hlas.api.documentation import problems
from hlas.api.reads import LIMITED
from hlas.doctor import probes
from hlas.http.asgi import REQUEST
from hlas.services import Services

router = APIRouter(tags=["operations"])


@router.get("/health", summary="Whether the process runs")
async def health(request: Request) -> dict[str, object]:
    services: Services = request.app.state.services
    tokens = request.headers.getlist("authorization")
    if not tokens or not probes.is_ours(services.tokens.secrets(), tokens):
        return {"status": "ok"}
    # `hlas doctor` asks for the address it is limited by and for the background tasks.
    return {
        "status": "ok",
        "seen": services.gate.seen(request.scope[REQUEST]),
        "background": services.background.report(),
    }


@router.get("/ready", summary="Whether it can serve", responses=problems(503))
async def ready(request: Request) -> dict[str, str]:
    """Whether the database responds and has this version's schema; checked at most once a second.

    Not limited: the result is shared, and a load balancer would take a 429 for an outage.
    """
    services: Services = request.app.state.services
    if not await services.readiness.get():
        raise errors.Unavailable(retry_after=5)
    return {"status": "ok"}


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses=problems(429),
    dependencies=LIMITED,
)
async def metrics(request: Request) -> Response:
    """Metrics of all workers, at most a second old."""
    services: Services = request.app.state.services
    text = await services.metrics.page.get()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
