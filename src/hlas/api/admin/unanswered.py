"""Questions that a tenant's knowledge did not answer, and what is done about them."""

from datetime import datetime
from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hlas.api.admin.access import Admin, Page, PathTenant, answer, answer_page, read_body, router
from hlas.api.admin.conversations import HIGHEST_SEQ
from hlas.api.admin.knowledge import NewEntry, Question
from hlas.api.documentation import problems, takes
from hlas.knowledge import unanswered
from hlas.knowledge.entries import MOST_WORDINGS, StoredEntry
from hlas.knowledge.groups import MOST_QUESTIONS
from hlas.knowledge.unanswered import Place, Reason, Search
from hlas.services import Services

CURSOR = r"^[0-9]{1,9}\.[0-9]{1,20}_[0-9a-f-]{36}\.[0-9]{1,10}$"


class GivenPlace(BaseModel):
    model_config = ConfigDict(extra="forbid")

    conversation_id: UUID
    seq: int = Field(ge=1, le=HIGHEST_SEQ)


class Dismissal(BaseModel):
    model_config = ConfigDict(extra="forbid")

    questions: list[GivenPlace] = Field(
        min_length=1, max_length=MOST_QUESTIONS, description="those of a group"
    )

    @property
    def places(self) -> list[Place]:
        return [Place(one.conversation_id, one.seq) for one in self.questions]


class NewAnswer(Dismissal):
    entry: NewEntry


class NewWordings(Dismissal):
    entry_id: UUID = Field(description="the entry that answers them")
    wordings: list[Question] = Field(min_length=1, max_length=MOST_WORDINGS)


class AskedQuestion(BaseModel):
    conversation_id: UUID
    seq: int = Field(description="that of the visitor's message")
    reason: Reason
    asked_at: datetime


class Suggestion(BaseModel):
    entry_id: UUID
    question: str
    confidence: float = Field(description="the probability that it answers, from 0 to 1")


class UnansweredGroup(BaseModel):
    id: str = Field(description="that of its newest question")
    question: str = Field(description="the most typical wording")
    wordings: list[str] = Field(description="up to 20 others")
    count: int
    last_asked_at: datetime
    reasons: dict[Reason, int]
    questions: list[AskedQuestion] = Field(description="the newest 200, newest first")
    suggestion: Suggestion | None = Field(description="the entry that comes closest")


class UnansweredGroups(BaseModel):
    groups: list[UnansweredGroup]
    next_cursor: str | None


class Dismissed(BaseModel):
    resolved: int = Field(description="how many of the questions were open")


class GroupsPage(Page):
    cursor: str | None = Field(None, pattern=CURSOR, description="a `next_cursor`")


def bind_search(request: Request, tenant_id: UUID) -> Search:
    services: Services = request.app.state.services
    return partial(services.agent.means.ranker.rank, str(tenant_id))


@router.get(
    "/tenants/{slug}/unanswered",
    response_model=UnansweredGroups,
    summary="List a tenant's unanswered questions, grouped by likeness",
    responses=problems(404, 422),
)
async def list_unanswered(
    access: Admin, tenant: PathTenant, request: Request, page: Annotated[GroupsPage, Query()]
) -> Response:
    """What is asked most and most recently comes first. The newest 2000 questions are grouped."""
    search = bind_search(request, tenant.id)
    found = await unanswered.page_groups(
        access.database, tenant.id, search, page.cursor, page.limit
    )
    return answer_page("groups", [one.describe() for one in found.groups], found.next_cursor)


@router.post(
    "/tenants/{slug}/unanswered/answer",
    status_code=201,
    response_model=StoredEntry,
    summary="Add an entry that answers questions",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewAnswer),
)
async def answer_questions(
    access: Admin, tenant: PathTenant, new: Annotated[NewAnswer, Depends(read_body(NewAnswer))]
) -> Response:
    added = await unanswered.answer(
        access.database, tenant.id, new.places, new.entry.entry(), access.change
    )
    headers = {"Location": f"/admin/tenants/{tenant.slug}/knowledge/{added.id}"}
    return answer(added, 201, revision=added.revision, headers=headers)


@router.post(
    "/tenants/{slug}/unanswered/wordings",
    response_model=StoredEntry,
    summary="Add questions to an entry as other wordings",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewWordings),
)
async def add_wordings(
    access: Admin,
    tenant: PathTenant,
    new: Annotated[NewWordings, Depends(read_body(NewWordings))],
) -> Response:
    changed = await unanswered.add_wordings(
        access.database, tenant.id, new.places, new.entry_id, new.wordings, access.change
    )
    return answer(changed, revision=changed.revision)


@router.post(
    "/tenants/{slug}/unanswered/dismiss",
    response_model=Dismissed,
    summary="Remove questions from the list that need no answer",
    responses=problems(404, 408, 413, 415, 422),
    openapi_extra=takes(Dismissal),
)
async def dismiss_questions(
    access: Admin, tenant: PathTenant, given: Annotated[Dismissal, Depends(read_body(Dismissal))]
) -> Response:
    resolved = await unanswered.dismiss(access.database, tenant.id, given.places, access.change)
    return answer({"resolved": resolved})
