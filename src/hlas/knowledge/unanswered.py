"""Questions that the knowledge did not answer: references to visitors' messages, never copies."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias
from uuid import UUID

import asyncpg

from hlas.errors import TooManyWordings, Unavailable
from hlas.knowledge import entries as knowledge
from hlas.knowledge import groups, language
from hlas.knowledge.entries import Entry, StoredEntry
from hlas.knowledge.groups import Group, Question
from hlas.knowledge.language import Language, fold
from hlas.knowledge.ranking import Match
from hlas.store.db import Database, Queries
from hlas.tenants import audit
from hlas.tenants.audit import COMMAND_LINE, Change

queries = Queries.beside(__file__)

Reason: TypeAlias = groups.Reason
Resolution: TypeAlias = Literal["answer", "wording", "dismissed"]
# Ranks the tenant's entries for a question.
Search: TypeAlias = Callable[[str, Language], Awaitable[list[Match]]]

# Older ones wait until these are resolved.
MOST_OPEN = 2_000
# One character more than fits into an entry, to recognise texts that are too long.
LONGEST_TEXT = groups.LONGEST_WORDING + 1
# Groups without a suggestion are listed all the same.
SUGGEST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question stands: the visitor's message."""

    conversation_id: UUID
    seq: int


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Open questions that are alike, and the entry that comes closest to an answer."""

    group: Group
    suggestion: Match | None

    def describe(self) -> dict[str, object]:
        """As clients see it."""
        group, best = self.group, self.suggestion
        return {
            "id": group.id,
            "question": group.title,
            "wordings": group.wordings,
            "count": len(group.questions),
            "last_asked_at": group.last_asked_at,
            "reasons": group.count_reasons(),
            "questions": [
                {
                    "conversation_id": one.conversation_id,
                    "seq": one.seq,
                    "reason": one.reason,
                    "asked_at": one.asked_at,
                }
                for one in group.questions[: groups.MOST_QUESTIONS]
            ],
            "suggestion": best
            and {
                "entry_id": best.entry_id,
                "question": best.question,
                "confidence": round(best.confidence, 2),
            },
        }


@dataclass(frozen=True, slots=True)
class Page:
    groups: list[OpenGroup]
    next_cursor: str | None


async def record(
    database: Database | asyncpg.Connection,
    tenant_id: str,
    conversation_id: str,
    seq: int,
    reason: Reason,
    entries: Sequence[str] = (),
) -> None:
    """Note that the visitor's message `seq` got no good answer; `entries` were offered or sent."""
    await database.execute(
        queries.record_question, tenant_id, conversation_id, seq, reason, list(entries)
    )


async def take_back(
    connection: asyncpg.Connection, tenant_id: str, conversation_id: str, seq: int, reason: Reason
) -> None:
    """Undo `record`, unless the question has a stronger reason."""
    await connection.execute(queries.take_back, tenant_id, conversation_id, seq, reason)


async def count_open(database: Database, tenant_id: UUID, most: int = MOST_OPEN) -> int:
    row = await database.one(queries.count_open, tenant_id, most)
    assert row is not None
    return int(row["open"])


async def list_groups(database: Database, tenant_id: UUID) -> list[Group]:
    """The open questions, grouped by likeness; most frequent and most recent first."""
    rows = await database.all(queries.open_questions, tenant_id, MOST_OPEN, LONGEST_TEXT)
    return await groups.gather(
        [
            Question(
                UUID(str(row["conversation_id"])),
                row["seq"],
                row["text"],
                row["reason"],
                row["created_at"],
                tuple(map(str, row["entries"])),
            )
            for row in rows
        ]
    )


async def page_groups(
    database: Database, tenant_id: UUID, search: Search, cursor: str | None, limit: int
) -> Page:
    """A page of groups with suggestions. The cursor stays valid when its group is resolved."""
    start = _parse_cursor(cursor or "")
    following = [group for group in await list_groups(database, tenant_id) if _place(group) > start]
    shown = following[:limit]
    suggestions = await suggest(shown, search)
    return Page(
        [OpenGroup(group, suggestions.get(group.id)) for group in shown],
        _make_cursor(shown[-1]) if len(following) > limit else None,
    )


def _place(group: Group) -> tuple[float, str]:
    return -group.score, group.id


def _make_cursor(group: Group) -> str:
    return f"{group.score!r}_{group.id}"


def _parse_cursor(cursor: str) -> tuple[float, str]:
    """The place after which a page begins; the first one where this is not a cursor of ours."""
    score, _, group_id = cursor.partition("_")
    try:
        return -float(score), group_id
    except ValueError:
        return float("-inf"), ""


def find_group(found: Sequence[Group], question_id: str) -> Group | None:
    """The group of a question, whichever of its questions that is."""
    for group in found:
        if any(question.id == question_id for question in group.questions):
            return group
    return None


def list_places(group: Group) -> list[Place]:
    """What one change resolves; the rest of a larger group stays open."""
    shown = group.questions[: groups.MOST_QUESTIONS]
    return [Place(question.conversation_id, question.seq) for question in shown]


async def suggest(shown: Sequence[Group], search: Search) -> dict[str, Match]:
    """The best entry for each group, by the group's id; not one that its visitors refused."""
    found: dict[str, Match] = {}
    with suppress(TimeoutError, Unavailable):
        async with asyncio.timeout(SUGGEST_SECONDS):
            for group in shown:
                refused = group.find_refused()
                matches = await search(group.title, language.detect(group.title) or "en")
                best = next((one for one in matches if one.entry_id not in refused), None)
                if best is not None:
                    found[group.id] = best
    return found


async def dismiss(
    database: Database, tenant_id: UUID, places: Sequence[Place], change: Change = COMMAND_LINE
) -> int:
    """Resolve questions that need no answer; how many of them were open."""
    async with database.transaction() as connection:
        return await _resolve(connection, tenant_id, places, "dismissed", "", change)


async def answer(
    database: Database,
    tenant_id: UUID,
    places: Sequence[Place],
    entry: Entry,
    change: Change = COMMAND_LINE,
) -> StoredEntry:
    """Add an entry that answers the questions; all of it or nothing."""
    async with knowledge.lock(database, tenant_id) as connection:
        added = await knowledge.add_within(connection, tenant_id, entry, change)
        await _resolve(connection, tenant_id, places, "answer", str(added.id), change)
    return added


async def add_wordings(
    database: Database,
    tenant_id: UUID,
    places: Sequence[Place],
    entry_id: UUID,
    wordings: Sequence[str],
    change: Change = COMMAND_LINE,
) -> StoredEntry:
    """Add other wordings to an entry, which answers the questions; all of it or nothing."""
    async with knowledge.lock(database, tenant_id) as connection:
        old = await knowledge.find_within(connection, tenant_id, entry_id)
        entry = _with_wordings(old.entry, wordings)
        changed = await knowledge.update_within(connection, tenant_id, old, entry, change)
        await _resolve(connection, tenant_id, places, "wording", str(entry_id), change)
    return changed


def _with_wordings(entry: Entry, wordings: Sequence[str]) -> Entry:
    known = {fold(text) for text in (entry.question, *entry.wordings)}
    together = list(entry.wordings)
    for text in wordings:
        if fold(text) not in known:
            known.add(fold(text))
            together.append(text)
    if len(together) > max(knowledge.MOST_WORDINGS, len(entry.wordings)):
        raise TooManyWordings(f"an entry can have at most {knowledge.MOST_WORDINGS} wordings")
    return replace(entry, wordings=tuple(together))


async def _resolve(
    connection: asyncpg.Connection,
    tenant_id: UUID,
    places: Sequence[Place],
    resolution: Resolution,
    target: str,
    change: Change,
) -> int:
    status = await connection.execute(
        queries.resolve_questions,
        tenant_id,
        [place.conversation_id for place in places],
        [place.seq for place in places],
        resolution,
    )
    resolved = int(status.rpartition(" ")[2])
    if resolved:
        # The words stay with the visitors' messages, which can be erased.
        after = {"questions": resolved, "resolution": resolution}
        await audit.record(connection, change, tenant_id, "unanswered.resolve", target, after=after)
    return resolved
