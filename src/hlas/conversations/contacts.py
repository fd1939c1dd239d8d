"""Visitors who want a person to answer, and how to reach them."""

from dataclasses import asdict, dataclass
from typing import Annotated, Self
from uuid import UUID

import asyncpg
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hlas import errors, payloads
from hlas.store.db import Queries, Row
from hlas.tenants.tenants import Handler
from hlas.visitors.sessions import require_standing
from hlas.visitors.tokens import Session

queries = Queries.beside(__file__)

# Without characters that have a meaning in e-mail headers.
_ATOM = r"""[^\s@<>()\[\],;:\\"]"""
_EMAIL = rf"^{_ATOM}{{1,64}}@{_ATOM}+\.{_ATOM}+$"
_PHONE = r"^\+?[0-9](?:[ ()./-]{0,3}[0-9]){2,19}$"


def _tidy(value: object) -> object:
    """One line without invisible characters; a blank value counts as missing."""
    if not isinstance(value, str):
        return value
    visible = "".join(one if one.isprintable() else " " for one in value)
    return " ".join(visible.split()) or None


_Given = BeforeValidator(_tidy)


class NewContact(BaseModel):
    """How a visitor wants to be reached: at least one of these. It replaces what was known."""

    model_config = ConfigDict(extra="forbid", strict=True)

    email: Annotated[str | None, _Given] = Field(None, max_length=254, pattern=_EMAIL)
    name: Annotated[str | None, _Given] = Field(None, max_length=100)
    phone: Annotated[str | None, _Given] = Field(None, max_length=40, pattern=_PHONE)

    @classmethod
    def parse(cls, body: bytes) -> "NewContact":
        try:
            new = cls.model_validate(payloads.loads(body))
        except ValidationError as error:
            raise payloads.invalid(error) from None
        if not new.model_dump(exclude_none=True):
            raise errors.InvalidRequest.at("body", kind="contact_missing")
        return new


@dataclass(frozen=True, slots=True)
class Contact:
    email: str | None = None
    name: str | None = None
    phone: str | None = None

    @classmethod
    def from_json(cls, stored: dict[str, str]) -> Self:
        return cls(stored.get("email"), stored.get("name"), stored.get("phone"))

    def to_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class Wish:
    """A visitor's wish for a person."""

    handler: Handler
    is_contact_wanted: bool
    # It was not known before.
    is_new: bool
    # The visitor's message that the refused suggestions were for.
    asked: int | None
    # The entries that were offered.
    entries: tuple[str, ...]


async def ask_for_person(
    connection: asyncpg.Connection, session: Session, none_of: UUID | None
) -> Wish:
    """Record that the visitor wants a person; the first time counts.

    `none_of` is the answer whose suggestions are not what the visitor means.
    """
    row = await _read_wish(connection, session, none_of)
    if none_of is not None and row["asked"] is None:
        raise errors.MessageNotFound
    is_new = await want_person(connection, session.tenant_id, session.conversation_id)
    entries = tuple(row["entries"] or ())
    return Wish(row["handler"], not row["contact"], is_new, row["asked"], entries)


async def want_person(connection: asyncpg.Connection, tenant_id: str, conversation_id: str) -> bool:
    """Record the wish in a transaction; returns whether it is new."""
    status = await connection.execute(queries.want_person, tenant_id, conversation_id)
    return bool(status == "UPDATE 1")


async def keep_contact(
    connection: asyncpg.Connection, session: Session, new: NewContact
) -> tuple[Contact, bool]:
    """Replace what is known of how to reach the visitor, who thereby wants a person.

    Returns also whether that is new.
    """
    contact = Contact(new.email, new.name, new.phone)
    await _read_wish(connection, session, None)
    key = (session.tenant_id, session.conversation_id)
    await connection.execute(queries.keep_contact, *key, contact.to_json())
    return contact, await want_person(connection, *key)


async def _read_wish(connection: asyncpg.Connection, session: Session, none_of: UUID | None) -> Row:
    row = await connection.fetchrow(
        queries.read_wish, session.tenant_id, session.conversation_id, none_of
    )
    row = require_standing(session, row)
    if row["status"] != "open":
        raise errors.ConversationClosed
    return row
