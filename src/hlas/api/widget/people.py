"""A visitor asks for a person, leaves an address, and rates an answer."""

from typing import Annotated
from uuid import UUID

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
from hlas.tenants.tenants import Handler


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
    wish = await contacts.ask_for_person(services.database, session, sent.none_of)
    if wish.asked is not None:
        await unanswered.record(
            services.database,
            session.tenant_id,
            session.conversation_id,
            wish.asked,
            "none_of_these",
        )
    if wish.is_new:
        log.info("person_wanted")
        services.live.touch(session.tenant_id, session.conversation_id)
    body = PersonAnswer(
        handler=wish.handler, available=False, contact_wanted=wish.is_contact_wanted
    )
    return Answer(200, PRIVATE, orjson.dumps(body.model_dump()))


async def keep_contact(services: Services, request: Request) -> Answer:
    """Say how a person can reach the visitor; it replaces what was said before."""
    session = await admit(services, request, PEOPLE)
    require_own(request, session)
    new = NewContact.parse(await request.read())
    contact = await contacts.keep_contact(services.database, session, new)
    return Answer(200, PRIVATE, orjson.dumps(contact))


async def rate_message(services: Services, request: Request) -> Answer:
    """Rate an answer of the assistant or of an operator; it replaces an earlier rating."""
    session = await admit(services, request, PEOPLE)
    message_id = _parse_id(request.path.split("/")[3])
    new = NewRating.parse(await request.read())
    asked = await ratings.rate(services.database, session, message_id, new)
    if asked is not None:
        note = unanswered.record if new.rating == "down" else unanswered.take_back
        await note(
            services.database, session.tenant_id, session.conversation_id, asked, "thumbs_down"
        )
    return Answer(204, (), b"")


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.MessageNotFound from None
