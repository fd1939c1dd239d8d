"""Who changed what."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Response
from pydantic import BaseModel, Field

from hlas.api.admin.access import Admin, Page, page_of, router
from hlas.api.documentation import problems
from hlas.tenants import audit
from hlas.tenants.tenants import SLUG


class Event(BaseModel):
    id: UUID
    created_at: datetime
    actor: str
    action: str
    target: str
    tenant_id: UUID | None = Field(description="null: it concerns the service itself")
    tenant: str | None = Field(description="its slug, if it is still there")
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    request_id: str | None


class Events(BaseModel):
    events: list[Event]
    next_cursor: UUID | None


class AuditPage(Page):
    cursor: UUID | None = Field(None, description="a `next_cursor`")
    tenant: str | None = Field(None, pattern=SLUG, description="a slug, also of a removed tenant")
    action: str | None = Field(
        None, pattern=r"^[a-z_]{1,40}(\.[a-z_]{1,40})?$", description="tenant.add, or all of tenant"
    )


@router.get("/audit", response_model=Events, summary="Read the audit", responses=problems(404, 422))
async def read_audit(access: Admin, page: Annotated[AuditPage, Query()]) -> Response:
    """Newest first; a tenant's own key sees what concerns that tenant."""
    found, following = await audit.listed(
        access.database,
        slug=page.tenant,
        action=page.action,
        before=page.cursor,
        limit=page.limit,
    )
    return page_of("events", found, following)
