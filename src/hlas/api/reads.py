"""The limit on requests without an administrator's key that cost more than a hash."""

from fastapi import Depends, Request

from hlas.http.asgi import REQUEST
from hlas.http.gate import READS
from hlas.services import Services


async def limit_reads(request: Request) -> None:
    """Consume the address's limit, before the token is verified and before any SQL."""
    services: Services = request.app.state.services
    await services.gate.consume(request.scope[REQUEST], READS)


LIMITED = [Depends(limit_reads)]
