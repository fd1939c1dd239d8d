"""Messages to be written, and what becomes of them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias


class Refusal(StrEnum):
    """Why a message was not written. The first six are outcomes of write_messages.sql."""

    CONVERSATION_NOT_FOUND = "conversation_not_found"
    CONVERSATION_CLOSED = "conversation_closed"
    TENANT_INACTIVE = "tenant_inactive"
    SESSION_REVOKED = "session_revoked"
    # An agent's message: a person has taken the conversation over since the run began.
    TAKEN_OVER = "taken_over"
    # An agent's message: the run is not this worker's any more, or was cancelled.
    RUN_LOST = "run_lost"
    # The key was used before, for a message with another hash.
    KEY_CONFLICT = "key_conflict"
    # Another process is writing to the conversation, and may be storing this key.
    IN_PROGRESS = "in_progress"
    # The database is away or slow, the queue is full, or the writer is closing.
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Written:
    """The stored response, and whether an earlier request stored it."""

    response: str
    replayed: bool


Outcome: TypeAlias = Written | Refusal


class Draft(NamedTuple):
    """The rows of one message: itself, and its key with the response if it has one."""

    tenant_id: str
    conversation_id: str
    # Of a visitor's session; None: the message is not a visitor's.
    generation: int | None
    message_id: str
    role: str
    content: str
    meta: str
    response: str
    key: str | None = None
    request_hash: bytes | None = None
    # The run that an agent's message finishes, and which attempt at it this is.
    run_id: str | None = None
    attempt: int | None = None


class CommitListener(Protocol):
    """Is told what a batch has committed."""

    def on_message(self, tenant_id: str, conversation_id: str) -> None: ...

    def on_run(self, run: str) -> None:
        """A run that this worker has to answer, as JSON (write_messages.sql)."""

    def on_waiting_run(self) -> None:
        """A run that waited can be claimed."""
