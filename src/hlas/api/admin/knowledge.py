"""A tenant's questions and answers."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from hlas.api.admin.access import (
    Admin,
    IfMatch,
    Page,
    PathTenant,
    answer,
    answer_page,
    read_body,
    router,
)
from hlas.api.documentation import problems, takes
from hlas.knowledge import entries as knowledge
from hlas.knowledge.entries import (
    LONGEST_ANSWER,
    LONGEST_KEYWORD,
    LONGEST_QUESTION,
    MOST_KEYWORDS,
    Entry,
    StoredEntry,
)
from hlas.knowledge.language import Language
from hlas.payloads import one_line, storable


def _trim(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, min_length=1, max_length=longest)


Question = Annotated[str, _trim(LONGEST_QUESTION), AfterValidator(one_line)]
Answer = Annotated[str, _trim(LONGEST_ANSWER), AfterValidator(storable)]
Keyword = Annotated[str, _trim(LONGEST_KEYWORD), AfterValidator(one_line)]


class NewEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    question: Question
    answer: Answer
    keywords: list[Keyword] = Field(default_factory=list, max_length=MOST_KEYWORDS)
    language: Language | None = Field(None, description="null: any language")

    def entry(self) -> Entry:
        return Entry(self.question, self.answer, tuple(self.keywords), self.language)


class Entries(BaseModel):
    entries: list[StoredEntry]
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
    access: Admin, tenant: PathTenant, page: Annotated[EntriesPage, Query()]
) -> Response:
    found, cursor = await knowledge.page_entries(
        access.database, tenant.id, page.cursor, page.limit
    )
    return answer_page("entries", found, cursor)


@router.post(
    "/tenants/{slug}/knowledge",
    status_code=201,
    response_model=StoredEntry,
    summary="Add a question and its answer",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewEntry),
)
async def add_entry(
    access: Admin, tenant: PathTenant, new: Annotated[NewEntry, Depends(read_body(NewEntry))]
) -> Response:
    added = await knowledge.add(access.database, tenant.id, new.entry(), access.change)
    headers = {"Location": f"/admin/tenants/{tenant.slug}/knowledge/{added.id}"}
    return answer(added, 201, revision=added.revision, headers=headers)


@router.get(
    "/tenants/{slug}/knowledge/{entry_id}",
    response_model=StoredEntry,
    summary="Read an entry",
    responses=problems(404, 422),
)
async def read_entry(access: Admin, tenant: PathTenant, entry_id: UUID) -> Response:
    found = await knowledge.find_entry(access.database, tenant.id, entry_id)
    return answer(found, revision=found.revision)


@router.put(
    "/tenants/{slug}/knowledge/{entry_id}",
    response_model=StoredEntry,
    summary="Replace an entry",
    responses=problems(404, 408, 409, 412, 413, 415, 422, 428),
    openapi_extra=takes(NewEntry),
)
async def replace_entry(
    access: Admin,
    tenant: PathTenant,
    entry_id: UUID,
    expected: IfMatch,
    new: Annotated[NewEntry, Depends(read_body(NewEntry))],
) -> Response:
    changed = await knowledge.update(
        access.database, tenant.id, entry_id, new.entry(), expected, access.change
    )
    return answer(changed, revision=changed.revision)


@router.delete(
    "/tenants/{slug}/knowledge/{entry_id}",
    status_code=204,
    summary="Remove an entry",
    responses=problems(404, 412, 413, 415, 422, 428),
)
async def remove_entry(
    access: Admin, tenant: PathTenant, entry_id: UUID, expected: IfMatch
) -> Response:
    await knowledge.remove_entry(access.database, tenant.id, entry_id, expected, access.change)
    return Response(status_code=204)
