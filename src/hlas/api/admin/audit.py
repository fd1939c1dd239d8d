"""The audit: who changed what."""

from typing import Annotated
from uuid import UUID

from fastapi import Query, Response
from pydantic import BaseModel, Field

from hlas.api.admin.access import Admin, Page, answer_page, router
from hlas.api.documentation import problems
from hlas.tenants import audit
from hlas.tenants.audit import Event
from hlas.tenants.tenants import SLUG


class Events(BaseModel):
    events: list[Event]
    next_cursor: UUID | None


class AuditPage(Page):
    cursor: UUID | None = Field(None, description="a `next_cursor`")
    tenant: str | None = Field(None, pattern=SLUG, description="a slug, also of a removed tenant")
    action: str | None = Field(
        None,
        pattern=r"^[a-z_]{1,40}(\.[a-z_]{1,40})?$",
        description="one action, as tenant.add, or all of tenant",
    )


@router.get("/audit", response_model=Events, summary="Read the audit", responses=problems(404, 422))
async def read_audit(access: Admin, page: Annotated[AuditPage, Query()]) -> Response:
    """Newest first; a tenant's own key sees the events of that tenant."""
    events, cursor = await audit.list_events(
        access.database,
        slug=page.tenant,
        action=page.action,
        before=page.cursor,
        limit=page.limit,
    )
    return answer_page("events", events, cursor)
