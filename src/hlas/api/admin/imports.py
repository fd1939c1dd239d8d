"""Imports of a tenant's knowledge from documents and websites, and their sources."""

import base64
import binascii
from dataclasses import asdict
from pathlib import PurePath
from typing import Annotated, Self
from uuid import UUID

from fastapi import Depends, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from hlas.api.admin.access import Access, Admin, PathTenant, answer, read_body, router
from hlas.api.admin.knowledge import Question
from hlas.api.documentation import problems, takes
from hlas.errors import InvalidRequest, PayloadTooLarge, UnreadableSource, UnsupportedDocument
from hlas.http.body import LARGEST_FILE
from hlas.knowledge.entries import LONGEST_URL, MOST_ENTRIES, Kind
from hlas.knowledge.imports import refresh, sources
from hlas.knowledge.imports.preview import Preview, State
from hlas.knowledge.imports.reading import (
    SHORT_CRAWL,
    SUFFIXES,
    Job,
    Progress,
    Reading,
    SourceKind,
    normalise,
)
from hlas.knowledge.imports.sources import Imported, Part, Source
from hlas.knowledge.language import Language
from hlas.outbound.client import OutboundError
from hlas.payloads import one_line
from hlas.services import Services
from hlas.tenants.tenants import Tenant

LONGEST_NAME = 200

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(one_line)]
Address = Annotated[str, Field(min_length=1, max_length=LONGEST_URL), AfterValidator(one_line)]


class ImportRequest(BaseModel):
    """A file, a page or a website: exactly one of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name | None = Field(None, description="of the file, with its suffix")
    content: str | None = Field(None, description="of the file, in base64; at most 10 MB of file")
    url: Address | None = Field(None, description="of a page")
    site: Address | None = Field(
        None, description="a website or its sitemap; at most 25 pages are read"
    )
    language: Language | None = Field(None, description="of entries that name none")

    @model_validator(mode="after")
    def check(self) -> Self:
        given = [self.content, self.url, self.site]
        if sum(one is not None for one in given) != 1:
            raise PydanticCustomError("one_of", "give one of content, url and site")
        if (self.name is None) != (self.content is None):
            raise PydanticCustomError("name_needed", "a file has a name and a content")
        return self

    def make_job(self) -> Job:
        if self.name is not None:
            return make_file_job(self.name, self.language)
        kind: SourceKind = "page" if self.url is not None else "site"
        return Job(kind, self.url or self.site or "", self.language, SHORT_CRAWL)

    def read_content(self) -> bytes:
        try:
            data = base64.b64decode(self.content or "", validate=True)
        except binascii.Error:
            raise InvalidRequest.at("body", "content", kind="base64_invalid") from None
        if len(data) > LARGEST_FILE:
            raise PayloadTooLarge
        return data


class Import(ImportRequest):
    take: list[Question] | None = Field(
        None,
        max_length=MOST_ENTRIES,
        description="the questions of the preview to save; null: those that are new, changed or "
        "removed",
    )


class PreviewItem(BaseModel):
    state: State
    question: str
    answer: str
    kind: Kind
    url: str
    entry_id: UUID | None = Field(description="the stored entry, if there is one")


class ImportPreview(BaseModel):
    kind: SourceKind
    location: str
    items: list[PreviewItem]
    warnings: list[str]


class Sources(BaseModel):
    sources: list[Source]


def make_file_job(name: str, language: Language | None) -> Job:
    """A file is known by its name, without the folders that some browsers send."""
    name = PurePath(name.replace("\\", "/")).name[-LONGEST_NAME:]
    if not name.lower().endswith(SUFFIXES):
        raise UnsupportedDocument(f"only {', '.join(SUFFIXES)} can be imported")
    return Job("file", name, language)


async def read_source(
    request: Request,
    tenant: Tenant,
    job: Job,
    data: bytes = b"",
    on_page: Progress = lambda _pages: None,
) -> Reading:
    services: Services = request.app.state.services
    job = normalise(job)
    if job.kind != "file":
        try:
            services.outbound.require_public(job.location)
        except OutboundError as error:
            raise UnreadableSource(f"{job.location}: {error}") from None
    return await services.source_reader.read(str(tenant.id), job, data, on_page)


def _describe(preview: Preview) -> ImportPreview:
    reading = preview.reading
    items = [
        PreviewItem(
            state=item.state,
            question=item.key,
            answer=item.entry.answer,
            kind=item.entry.kind,
            url=item.entry.url,
            entry_id=item.stored and item.stored.id,
        )
        for item in preview.items
    ]
    return ImportPreview(
        kind=reading.kind,
        location=reading.location,
        items=items,
        warnings=list(reading.warnings),
    )


@router.post(
    "/tenants/{slug}/knowledge/preview",
    response_model=ImportPreview,
    summary="See what an import would change",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(ImportRequest),
)
async def preview_import(
    access: Admin,
    tenant: PathTenant,
    request: Request,
    wanted: Annotated[ImportRequest, Depends(read_body(ImportRequest))],
) -> Response:
    """Nothing is saved."""
    reading = await read_source(request, tenant, wanted.make_job(), wanted.read_content())
    [preview] = await sources.preview(access.database, tenant.id, [reading])
    return answer(_describe(preview).model_dump())


@router.post(
    "/tenants/{slug}/knowledge/import",
    response_model=Imported,
    summary="Import a document, a page or a website",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(Import),
)
async def import_source(
    access: Admin,
    tenant: PathTenant,
    request: Request,
    wanted: Annotated[Import, Depends(read_body(Import))],
) -> Response:
    """All of it is saved or nothing."""
    reading = await read_source(request, tenant, wanted.make_job(), wanted.read_content())
    chosen = None if wanted.take is None else frozenset(wanted.take)
    [imported] = await sources.save(
        access.database, tenant.id, [Part(reading, chosen)], access.change
    )
    return answer(imported)


@router.get(
    "/tenants/{slug}/sources",
    response_model=Sources,
    summary="List what a tenant's knowledge was imported from",
    responses=problems(404, 422),
)
async def list_sources(access: Admin, tenant: PathTenant) -> Response:
    return answer({"sources": await sources.list_sources(access.database, tenant.id)})


@router.post(
    "/tenants/{slug}/sources/{source_id}/refresh",
    response_model=Imported,
    summary="Fetch a page or a website again and take what has changed",
    responses=problems(404, 408, 409, 413, 415, 422),
)
async def refresh_source(
    access: Admin, tenant: PathTenant, request: Request, source_id: UUID
) -> Response:
    """Entries of pages that are gone are removed; what a person has edited stays."""
    source = await sources.find_source(access.database, tenant.id, str(source_id))
    reading = await fetch_source(request, access, tenant, source)
    imported = await refresh.take(access.database, tenant.id, reading, access.change)
    return answer(asdict(imported))


async def fetch_source(request: Request, access: Access, tenant: Tenant, source: Source) -> Reading:
    job = await refresh.make_job(access.database, tenant.id, source, SHORT_CRAWL)
    return await read_source(request, tenant, job)


@router.delete(
    "/tenants/{slug}/sources/{source_id}",
    status_code=204,
    summary="Remove a source with its entries",
    responses=problems(404, 413, 415, 422),
)
async def remove_source(access: Admin, tenant: PathTenant, source_id: UUID) -> Response:
    """Entries that a person has edited stay."""
    await sources.remove_source(access.database, tenant.id, str(source_id), access.change)
    return Response(status_code=204)
