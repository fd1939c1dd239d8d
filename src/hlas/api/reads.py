"""The limit on what costs more than a hash and needs no administrator's key."""

from fastapi import Depends, Request

from hlas.http.asgi import REQUEST
from hlas.http.gate import READS
from hlas.services import Services


async def limit_reads(request: Request) -> None:
    """Before the token is looked at and before any SQL: the address pays."""
    services: Services = request.app.state.services
    await services.gate.consume(request.scope[REQUEST], READS)


LIMITED = [Depends(limit_reads)]
