"""Whose data is exported or erased, how much there is, and the pace of working on it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from hlas.store.db import Database, Queries
from hlas.tenants import tenants

queries = Queries.beside(__file__)

# Visitors have priority: after each page or batch, rest this many times as long as it took.
REST = 2.0

Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Subject:
    """The data of a tenant, of one visitor, or of one conversation."""

    tenant_id: UUID
    visitor_id: str | None = None
    conversation_id: UUID | None = None

    @property
    def arguments(self) -> tuple[UUID, str | None, UUID | None]:
        return self.tenant_id, self.visitor_id, self.conversation_id

    @property
    def target(self) -> str:
        """The name in the audit: neither the visitor's id nor a hash of it that can be guessed."""
        if self.conversation_id is not None:
            return f"conversation {self.conversation_id}"
        return "visitor" if self.visitor_id is not None else "tenant"


@dataclass(slots=True)
class Count:
    conversations: int = 0
    messages: int = 0

    def add(self, conversations: int, messages: int) -> None:
        self.conversations += conversations
        self.messages += messages

    def __bool__(self) -> bool:
        return bool(self.conversations or self.messages)

    def to_dict(self) -> dict[str, int]:
        return {"conversations": self.conversations, "messages": self.messages}


async def find_subject(
    operators: Database, slug: str, visitor_id: str | None = None, conversation: UUID | None = None
) -> Subject:
    tenant = await tenants.find_tenant(operators, slug)
    return Subject(tenant.id, visitor_id, conversation)


async def count_data(operators: Database, subject: Subject) -> Count:
    """How much there is to export or erase."""
    row = await operators.one(queries.count_data, *subject.arguments)
    return Count(row["conversations"], row["messages"]) if row else Count()


async def rest(since: float) -> None:
    """Wait REST times as long as the work that started at `since` took."""
    await asyncio.sleep(REST * (time.monotonic() - since))
