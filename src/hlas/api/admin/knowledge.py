"""A tenant's questions and answers."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from hlas.api.admin.access import (
    Access,
    Admin,
    IfMatch,
    Page,
    Parameters,
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
    LONGEST_SEARCH,
    LONGEST_URL,
    MOST_KEYWORDS,
    MOST_WORDINGS,
    Entry,
    Kind,
    StoredEntry,
)
from hlas.knowledge.files import Format, export, is_url
from hlas.knowledge.language import Language
from hlas.payloads import one_line, storable
from hlas.tenants.tenants import Tenant


def _trim(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, min_length=1, max_length=longest)


def _check_url(value: str) -> str:
    if value and not is_url(value):
        raise PydanticCustomError("invalid_url", "not an http or https address")
    return value


Question = Annotated[str, _trim(LONGEST_QUESTION), AfterValidator(one_line)]
Answer = Annotated[str, _trim(LONGEST_ANSWER), AfterValidator(storable)]
Keyword = Annotated[str, _trim(LONGEST_KEYWORD), AfterValidator(one_line)]
Url = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=LONGEST_URL),
    AfterValidator(_check_url),
]


class NewEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    question: Question
    answer: Answer
    keywords: list[Keyword] = Field(default_factory=list, max_length=MOST_KEYWORDS)
    language: Language | None = Field(None, description="null: any language")
    kind: Kind = Field("answer", description="a passage is prose under a heading")
    wordings: list[Question] = Field(
        default_factory=list, max_length=MOST_WORDINGS, description="other ways to ask the same"
    )
    url: Url = Field("", description="the page to which visitors are led")

    def entry(self) -> Entry:
        return Entry(
            self.question,
            self.answer,
            tuple(self.keywords),
            self.language,
            self.kind,
            # The question itself, or a wording twice, adds nothing.
            tuple(dict.fromkeys(one for one in self.wordings if one != self.question)),
            self.url,
        )


class Entries(BaseModel):
    entries: list[StoredEntry]
    next_cursor: UUID | None


class EntriesPage(Page):
    cursor: UUID | None = Field(None, description="a `next_cursor`")
    search: Annotated[str, AfterValidator(storable)] = Field(
        "", max_length=LONGEST_SEARCH, description="only entries that contain all of these words"
    )
    kind: Kind | None = None
    source: UUID | None = Field(None, description="only entries of this source")


class Export(Parameters):
    format: Format = "md"


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
        access.database,
        tenant.id,
        page.cursor,
        page.limit,
        search=page.search,
        kind=page.kind,
        source_id=page.source,
    )
    return answer_page("entries", found, cursor)


# Before the routes of an entry, whose id would be "export".
@router.get(
    "/tenants/{slug}/knowledge/export",
    response_class=Response,
    summary="Export a tenant's knowledge as a file",
    responses={
        200: {"content": {"text/markdown": {}, "text/csv": {}}},
        **problems(404, 422),
    },
)
async def export_entries(
    access: Admin, tenant: PathTenant, wanted: Annotated[Export, Query()]
) -> Response:
    """Markdown or CSV; imported again, it gives the same entries."""
    return await answer_export(access, tenant, wanted.format)


async def answer_export(access: Access, tenant: Tenant, form: Format) -> Response:
    found = await knowledge.list_entries(access.database, tenant.id)
    return Response(
        export([one.entry for one in found], form),
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{tenant.slug}-knowledge.{form}"',
        },
        media_type="text/csv" if form == "csv" else "text/markdown",
    )


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
