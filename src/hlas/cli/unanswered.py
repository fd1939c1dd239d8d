"""Questions that a tenant's knowledge did not answer, from the command line."""

from functools import partial
from typing import Annotated
from uuid import UUID

import typer

from hlas.cli.database import AsJson, show, with_operators
from hlas.cli.imports import Tenant, find_tenant_id
from hlas.errors import TenantError
from hlas.knowledge import unanswered as questions
from hlas.knowledge.entries import LONGEST_ANSWER, LONGEST_QUESTION, Entry
from hlas.knowledge.groups import Group
from hlas.knowledge.language import Language
from hlas.knowledge.ranking import Match
from hlas.knowledge.ranking.library import Library
from hlas.knowledge.unanswered import OpenGroup, Page
from hlas.store.db import Database

unanswered = typer.Typer(
    help="Questions without a good answer: list, answer, reword.", no_args_is_help=True
)

MOST_GROUPS = 50

Id = Annotated[str, typer.Argument(metavar="ID", help="The group's id in the list.")]
Wording = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="A better wording; it comes before those of the visitors."),
]


async def _search(
    library: Library, operators: Database, tenant_id: UUID, text: str, language: Language
) -> list[Match]:
    """Without the semantic part, which belongs to the running service."""
    index = await library.open(operators, str(tenant_id))
    return index.search(text, language)


async def _find_group(operators: Database, tenant_id: UUID, group_id: str) -> Group:
    group = questions.find_group(await questions.list_groups(operators, tenant_id), group_id)
    if group is None:
        raise TenantError(f"there is no open question {group_id}")
    return group


def _choose_wordings(group: Group, wording: str | None) -> list[str]:
    """The given one first, then those of the visitors."""
    chosen = [] if wording is None else [_require_length(" ".join(wording.split()))]
    return list(dict.fromkeys([*chosen, group.title, *group.wordings]))


def _require_length(text: str, longest: int = LONGEST_QUESTION) -> str:
    if not 0 < len(text) <= longest:
        raise TenantError(f"a text has 1 to {longest} characters here, not {len(text)}")
    return text


def _count(group: Group) -> str:
    number = len(questions.list_places(group))
    return f"{number} question{'s' if number != 1 else ''}"


@unanswered.command("list")
def list_unanswered(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """List unanswered questions in groups of similar ones.

    The most frequent and most recent come first.
    """

    async def work(operators: Database) -> Page:
        tenant_id = await find_tenant_id(operators, tenant)
        search = partial(_search, Library(), operators, tenant_id)
        return await questions.page_groups(operators, tenant_id, search, None, MOST_GROUPS)

    found = with_operators(work).groups
    show(
        [one.describe() for one in found],
        as_json=as_json,
        text="\n".join(map(_describe, found)) or "No unanswered questions.",
    )


def _describe(found: OpenGroup) -> str:
    group, best = found.group, found.suggestion
    lines = [
        f"{len(group.questions):>4}  {group.last_asked_at:%Y-%m-%d}  {group.title}",
        f"      {group.id}",
    ]
    if best is not None:
        lines.append(f"      closest entry: {best.entry_id}  {best.question}")
    return "\n".join(lines)


@unanswered.command()
def answer(
    question: Id,
    text: Annotated[str, typer.Argument(metavar="ANSWER", help="The answer, in Markdown.")],
    tenant: Tenant,
    wording: Wording = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add an entry that answers a group of questions."""

    async def work(operators: Database) -> tuple[UUID, Group]:
        tenant_id = await find_tenant_id(operators, tenant)
        group = await _find_group(operators, tenant_id, question)
        title, *others = _choose_wordings(group, wording)
        entry = Entry(title, _require_length(text.strip(), LONGEST_ANSWER), wordings=tuple(others))
        places = questions.list_places(group)
        return (await questions.answer(operators, tenant_id, places, entry)).id, group

    entry_id, group = with_operators(work)
    show(
        {"entry_id": entry_id},
        as_json=as_json,
        text=f"{tenant}: entry {entry_id} answers {_count(group)}.",
    )


@unanswered.command()
def reword(
    question: Id,
    entry: Annotated[UUID, typer.Argument(metavar="ENTRY", help="The entry that answers it.")],
    tenant: Tenant,
    wording: Wording = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a group's wordings to an entry that answers it."""

    async def work(operators: Database) -> Group:
        tenant_id = await find_tenant_id(operators, tenant)
        group = await _find_group(operators, tenant_id, question)
        wordings = _choose_wordings(group, wording)
        places = questions.list_places(group)
        await questions.add_wordings(operators, tenant_id, places, entry, wordings)
        return group

    group = with_operators(work)
    show(
        {"entry_id": entry},
        as_json=as_json,
        text=f"{tenant}: entry {entry} answers {_count(group)}.",
    )


@unanswered.command()
def dismiss(question: Id, tenant: Tenant, *, as_json: AsJson = False) -> None:
    """Remove a group of questions from the list that needs no answer."""

    async def work(operators: Database) -> int:
        tenant_id = await find_tenant_id(operators, tenant)
        group = await _find_group(operators, tenant_id, question)
        return await questions.dismiss(operators, tenant_id, questions.list_places(group))

    resolved = with_operators(work)
    plural = "s" if resolved != 1 else ""
    show(
        {"resolved": resolved},
        as_json=as_json,
        text=f"{tenant}: {resolved} question{plural} dismissed.",
    )
