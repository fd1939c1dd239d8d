"""A visitor asks for a person, leaves an address, and rates an answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

import asyncpg
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import errors, log, payloads
from hlas.api.widget.steps import admit, require_own
from hlas.conversations import contacts, ratings
from hlas.conversations.contacts import NewContact
from hlas.conversations.ratings import NewRating
from hlas.http.answer import PRIVATE, Answer
from hlas.http.gate import PEOPLE
from hlas.http.request import Request
from hlas.knowledge import unanswered
from hlas.services import Services
from hlas.store.db import Confined
from hlas.tenants.tenants import Handler
from hlas.visitors.tokens import Session


class PersonWish(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    none_of: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="the assistant's message, none of whose suggestions was meant"
    )

    @classmethod
    def parse(cls, body: bytes) -> "PersonWish":
        try:
            return cls.model_validate(payloads.loads(body) if body else {})
        except ValidationError as error:
            raise payloads.invalid(error) from None


class PersonAnswer(BaseModel):
    handler: Handler = Field(description="who answers now")
    available: bool = Field(description="whether a person can answer at once")
    contact_wanted: bool = Field(description="whether to ask how the visitor can be reached")


async def ask_for_person(services: Services, request: Request) -> Answer:
    """Ask for a person. The assistant goes on answering until one takes over."""
    session = await admit(services, request, PEOPLE)
    require_own(request, session)
    sent = PersonWish.parse(await request.read())
    async with _as_tenant(services, session) as connection:
        wish = await contacts.ask_for_person(connection, session, sent.none_of)
        if wish.asked is not None:
            key = (session.tenant_id, session.conversation_id, wish.asked)
            await unanswered.record(connection, *key, "none_of_these", wish.entries)
    if wish.is_new:
        _tell(services, session)
    body = PersonAnswer(
        handler=wish.handler, available=False, contact_wanted=wish.is_contact_wanted
    )
    return Answer(200, PRIVATE, orjson.dumps(body.model_dump()))


async def keep_contact(services: Services, request: Request) -> Answer:
    """Ask for a person and say how they reach the visitor; it replaces what was said before."""
    session = await admit(services, request, PEOPLE)
    require_own(request, session)
    new = NewContact.parse(await request.read())
    async with _as_tenant(services, session) as connection:
        contact, is_new = await contacts.keep_contact(connection, session, new)
    if is_new:
        _tell(services, session)
    return Answer(200, PRIVATE, orjson.dumps(contact))


async def rate_message(services: Services, request: Request) -> Answer:
    """Rate an answer of the assistant or of an operator; it replaces an earlier rating."""
    session = await admit(services, request, PEOPLE)
    message_id = _parse_id(request.path.split("/")[3])
    new = NewRating.parse(await request.read())
    async with _as_tenant(services, session) as connection:
        rated = await ratings.rate(connection, session, message_id, new)
        if rated.asked is not None:
            key = (session.tenant_id, session.conversation_id, rated.asked)
            if new.rating == "down":
                await unanswered.record(connection, *key, "thumbs_down", rated.entries)
            else:
                await unanswered.take_back(connection, *key, "thumbs_down")
    return Answer(204, (), b"")


@asynccontextmanager
async def _as_tenant(services: Services, session: Session) -> AsyncIterator[asyncpg.Connection]:
    try:
        async with Confined(services.database, session.tenant_id).transaction() as connection:
            yield connection
    except asyncpg.ForeignKeyViolationError:
        # It was erased at this moment.
        raise errors.ConversationNotFound from None


def _tell(services: Services, session: Session) -> None:
    """Tell those who can answer that a person is wanted."""
    log.info("person_wanted")
    services.live.touch(session.tenant_id, session.conversation_id)


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.MessageNotFound from None
