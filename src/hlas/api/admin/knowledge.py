"""A tenant's questions and answers."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from hlas.api.admin.access import (
    Admin,
    IfMatch,
    Page,
    Tenant,
    TenantId,
    answer,
    content,
    page_of,
    router,
)
from hlas.api.documentation import problems, takes
from hlas.knowledge import entries as knowledge
from hlas.knowledge.entries import LONGEST_ANSWER, LONGEST_KEYWORD, LONGEST_QUESTION, MOST_KEYWORDS
from hlas.knowledge.language import Language
from hlas.payloads import one_line, storable


def _trimmed(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, min_length=1, max_length=longest)


Question = Annotated[str, _trimmed(LONGEST_QUESTION), AfterValidator(one_line)]
Answer = Annotated[str, _trimmed(LONGEST_ANSWER), AfterValidator(storable)]
Keyword = Annotated[str, _trimmed(LONGEST_KEYWORD), AfterValidator(one_line)]


class NewEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    question: Question
    answer: Answer
    keywords: list[Keyword] = Field(default_factory=list, max_length=MOST_KEYWORDS)
    language: Language | None = Field(None, description="null: any")

    def entry(self) -> knowledge.Entry:
        return knowledge.Entry(self.question, self.answer, tuple(self.keywords), self.language)


class Entry(NewEntry):
    id: UUID
    created_at: datetime
    updated_at: datetime


class Entries(BaseModel):
    entries: list[Entry]
    next_cursor: UUID | None


class EntriesPage(Page):
    cursor: UUID | None = Field(None, description="a `next_cursor`")


@router.get(
    "/tenants/{slug}/knowledge",
    response_model=Entries,
    summary="List a tenant's knowledge",
    responses=problems(404, 422),
)
async def list_entries(
    access: Admin, tenant_id: TenantId, page: Annotated[EntriesPage, Query()]
) -> Response:
    found = await knowledge.paged(access.database, tenant_id, page.cursor, page.limit + 1)
    more = len(found) > page.limit
    return page_of("entries", found[: page.limit], found[page.limit - 1]["id"] if more else None)


@router.post(
    "/tenants/{slug}/knowledge",
    status_code=201,
    response_model=Entry,
    summary="Add a question and its answer",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewEntry),
)
async def add_entry(
    access: Admin, tenant: Tenant, new: Annotated[NewEntry, Depends(content(NewEntry))]
) -> Response:
    added = await knowledge.add(access.database, UUID(tenant["id"]), new.entry(), access.change)
    headers = {"Location": f"/admin/tenants/{tenant['slug']}/knowledge/{added['id']}"}
    return answer(added, 201, tagged=True, headers=headers)


@router.get(
    "/tenants/{slug}/knowledge/{entry_id}",
    response_model=Entry,
    summary="Read an entry",
    responses=problems(404, 422),
)
async def read_entry(access: Admin, tenant_id: TenantId, entry_id: UUID) -> Response:
    return answer(await knowledge.by_id(access.database, tenant_id, entry_id), tagged=True)


@router.put(
    "/tenants/{slug}/knowledge/{entry_id}",
    response_model=Entry,
    summary="Replace an entry",
    responses=problems(404, 408, 409, 412, 413, 415, 422, 428),
    openapi_extra=takes(NewEntry),
)
async def replace_entry(
    access: Admin,
    tenant_id: TenantId,
    entry_id: UUID,
    expected: IfMatch,
    new: Annotated[NewEntry, Depends(content(NewEntry))],
) -> Response:
    changed = await knowledge.update(
        access.database, tenant_id, entry_id, new.entry(), expected, access.change
    )
    return answer(changed, tagged=True)


@router.delete(
    "/tenants/{slug}/knowledge/{entry_id}",
    status_code=204,
    summary="Remove an entry",
    responses=problems(404, 412, 413, 415, 422, 428),
)
async def remove_entry(
    access: Admin, tenant_id: TenantId, entry_id: UUID, expected: IfMatch
) -> Response:
    await knowledge.remove_one(access.database, tenant_id, entry_id, expected, access.change)
    return Response(status_code=204)
