"""Questions without a good answer: a list of groups, and a page on which a group is resolved."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Path, Response
from pydantic import BaseModel, Field, ValidationError

from hlas import errors
from hlas.api.admin.knowledge import Question
from hlas.api.admin.unanswered import bind_search
from hlas.api.console import knowledge as knowledge_pages
from hlas.api.console.access import (
    CONSOLE,
    Form,
    PathTenant,
    Sent,
    Signed,
    Visit,
    explain,
    go,
    parse_id,
    router,
)
from hlas.api.console.pages import describe_likelihood
from hlas.errors import EntryNotFound, QuestionTaken, TooManyEntries, TooManyWordings
from hlas.knowledge import entries, language, unanswered
from hlas.knowledge.entries import LONGEST_SEARCH, MOST_WORDINGS, Kind
from hlas.knowledge.groups import Group, Reason
from hlas.knowledge.unanswered import SUGGEST_SECONDS, Place
from hlas.tenants.tenants import Tenant

PAGE = 20
NEAREST = 5
FOUND = 10
REASONS: dict[Reason, str] = {
    "fallback": "no answer",
    "none_of_these": "“None of these”",
    "thumbs_down": "thumbs-down",
}
GONE = "This question is not open: somebody has answered or dismissed it."
NOT_SAVED = f"{GONE} Your text is below; nothing is saved yet."

QuestionId = Annotated[str, Path(pattern=r"^[0-9a-f-]{36}\.[0-9]{1,10}$")]


class Wordings(BaseModel):
    wordings: list[Question] = Field(min_length=1, max_length=MOST_WORDINGS)


@dataclass(frozen=True, slots=True)
class Choice:
    """An entry to which the question may be added as another wording."""

    id: str
    question: str
    answer: str
    kind: Kind
    # What speaks for it or against it, in words.
    hint: str = ""


@router.get("/tenants/{slug}/unanswered")
async def list_groups(visit: Signed, tenant: PathTenant, cursor: str = "") -> Response:
    return await _list_page(visit, tenant, cursor=cursor)


async def _list_page(
    visit: Visit, tenant: Tenant, status: int = 200, *, cursor: str = "", note: str = ""
) -> Response:
    search = bind_search(visit.request, tenant.id)
    shown = await unanswered.page_groups(visit.database, tenant.id, search, cursor or None, PAGE)
    return visit.page(
        "unanswered.html",
        status,
        tenant=tenant,
        groups=shown.groups,
        following=shown.next_cursor,
        is_first=not cursor,
        reasons=REASONS,
        note=note,
    )


@router.get("/tenants/{slug}/unanswered/{question_id}")
async def read_group(
    visit: Signed, tenant: PathTenant, question_id: QuestionId, find: str = ""
) -> Response:
    found = await unanswered.list_groups(visit.database, tenant.id)
    group = unanswered.find_group(found, question_id)
    if group is None:
        return await _list_page(visit, tenant, 404, note=GONE)
    return await _group_page(visit, tenant, group, len(found), find=_clean(find))


def _clean(find: str) -> str:
    return find.replace("\0", "").strip()[:LONGEST_SEARCH]


async def _group_page(
    visit: Visit,
    tenant: Tenant,
    group: Group,
    count: int,
    status: int = 200,
    *,
    find: str = "",
    form: Form | None = None,
    wording_form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    wordings = "\n".join(group.wordings)
    places = " ".join(question.id for question in group.questions)
    return visit.page(
        "unanswered-group.html",
        status,
        tenant=tenant,
        group=group,
        count=count,
        places=places,
        reasons=REASONS,
        find=find,
        choices=await _find_choices(visit, tenant, group, find),
        form=form or {"question": group.title, "wordings": wordings},
        wording_form=wording_form or {"added": "\n".join((group.title, *group.wordings))},
        problems=problems or {},
    )


async def _find_choices(visit: Visit, tenant: Tenant, group: Group, find: str) -> list[Choice]:
    """What contains the words that were searched for, or what comes nearest to the question."""
    if find:
        shown, _ = await entries.page_entries(visit.database, tenant.id, None, FOUND, search=find)
        return [Choice(str(one.id), one.question, one.answer, one.kind) for one in shown]
    search, refused = bind_search(visit.request, tenant.id), group.find_refused()
    # The page is useful without them.
    with suppress(TimeoutError, errors.Unavailable):
        async with asyncio.timeout(SUGGEST_SECONDS):
            matches = await search(group.title, language.detect(group.title) or "en")
        return [
            Choice(
                one.entry_id,
                one.question,
                one.answer,
                one.kind,
                "visitors did not want it"
                if one.entry_id in refused
                else describe_likelihood(one.confidence).lower(),
            )
            for one in matches[:NEAREST]
        ]
    return []


@dataclass(frozen=True, slots=True)
class _Work:
    """A group that is about to be resolved, and the one to go to afterwards."""

    group: Group
    count: int
    # Those that the page has shown; what was asked since stays open.
    places: list[Place]
    next_id: str | None

    def go_on(self, tenant: Tenant, done: str) -> Response:
        base = f"{CONSOLE}/tenants/{tenant.slug}/unanswered"
        return go(f"{base}/{self.next_id}" if self.next_id else base, done)


async def _begin(visit: Visit, tenant: Tenant, question_id: str, form: Form) -> _Work | None:
    found = await unanswered.list_groups(visit.database, tenant.id)
    group = unanswered.find_group(found, question_id)
    if group is None:
        return None
    shown = frozenset(form.get("places", "").split())
    places = [
        place
        for place in unanswered.list_places(group)
        if f"{place.conversation_id}.{place.seq}" in shown
    ]
    number = found.index(group)
    others = [*found[number + 1 :], *found[:number]]
    return _Work(group, len(found), places, others[0].id if others else None) if places else None


@router.post("/tenants/{slug}/unanswered/{question_id}/answer")
async def answer_group(
    visit: Signed, tenant: PathTenant, question_id: QuestionId, form: Sent
) -> Response:
    """Add an entry that answers the group, then show the next group."""
    work = await _begin(visit, tenant, question_id, form)
    if work is None:
        return await knowledge_pages.list_page(visit, tenant, 404, form=form, note=NOT_SAVED)
    try:
        entry = knowledge_pages.read_entry_form(form)
        await unanswered.answer(visit.database, tenant.id, work.places, entry, visit.change)
    except ValidationError as error:
        status, problems = 422, explain(error)
    except (QuestionTaken, TooManyEntries) as error:
        status, problems = error.status, {"question": error.message}
    else:
        return work.go_on(tenant, "answered")
    return await _group_page(
        visit, tenant, work.group, work.count, status, form=form, problems=problems
    )


@router.post("/tenants/{slug}/unanswered/{question_id}/wordings")
async def add_wordings(
    visit: Signed, tenant: PathTenant, question_id: QuestionId, form: Sent
) -> Response:
    """Add the question to an entry as another wording, then show the next group."""
    work = await _begin(visit, tenant, question_id, form)
    if work is None:
        return await _list_page(visit, tenant, 404, note=GONE)
    entry_id = parse_id(form.get("entry_id"))
    try:
        wordings = _read_wordings(form)
        if entry_id is not None:
            await unanswered.add_wordings(
                visit.database, tenant.id, work.places, entry_id, wordings, visit.change
            )
            return work.go_on(tenant, "worded")
        status, problems = 422, {"entry_id": "Choose an entry."}
    except ValidationError as error:
        status, problems = 422, {"added": explain(error)["wordings"]}
    except (EntryNotFound, TooManyWordings, TooManyEntries) as error:
        status, problems = error.status, {"entry_id": error.message}
    return await _group_page(
        visit,
        tenant,
        work.group,
        work.count,
        status,
        find=_clean(form.get("find", "")),
        wording_form={"added": form.get("added", ""), "entry_id": form.get("entry_id", "")},
        problems=problems,
    )


def _read_wordings(form: Form) -> Sequence[str]:
    return Wordings.model_validate(
        {"wordings": knowledge_pages.split_lines(form.get("added", ""))}
    ).wordings


@router.post("/tenants/{slug}/unanswered/{question_id}/dismiss")
async def dismiss_group(
    visit: Signed, tenant: PathTenant, question_id: QuestionId, form: Sent
) -> Response:
    work = await _begin(visit, tenant, question_id, form)
    if work is None:
        return await _list_page(visit, tenant, 404, note=GONE)
    await unanswered.dismiss(visit.database, tenant.id, work.places, visit.change)
    if "stay" in form:
        return go(f"{CONSOLE}/tenants/{tenant.slug}/unanswered", "dismissed")
    return work.go_on(tenant, "dismissed")
