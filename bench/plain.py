"""A plain FastAPI service with async SQLAlchemy and a statement for each step, for comparison.

Good code of its kind, on our tables and with our guarantees (a key is claimed once, messages are
numbered without gaps), but without limits and metrics.
"""

import hashlib
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import jwt
import structlog
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import JSON, DateTime, LargeBinary, Text, select, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SECRET = os.environ.get("WIDGET_SESSION_JWT_SECRET", "")
URL = os.environ.get("DATABASE_URL", "postgresql://").replace(
    "postgresql://", "postgresql+asyncpg://", 1
)

# No overflow: it would open and close a connection for every other request.
engine = create_async_engine(URL, pool_size=20, max_overflow=0)
open_session = async_sessionmaker(engine, expire_on_commit=False)
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.JSONRenderer(),
    ]
)
log = structlog.get_logger()
app = FastAPI()
bearer = HTTPBearer()


class Base(DeclarativeBase):
    pass


class Tenant(Base):
    __tablename__ = "tenants"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    is_active: Mapped[bool]


class Conversation(Base):
    __tablename__ = "conversations"
    tenant_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(Text)
    last_seq: Mapped[int]
    last_message_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Message(Base):
    __tablename__ = "messages"
    tenant_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    conversation_id: Mapped[uuid.UUID]
    seq: Mapped[int]
    role: Mapped[str] = mapped_column(Text)
    content: Mapped[str] = mapped_column(Text)
    meta: Mapped[dict[str, Any]] = mapped_column(JSONB)


class IdempotencyKey(Base):
    __tablename__ = "idempotency_keys"
    tenant_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    conversation_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    request_hash: Mapped[bytes] = mapped_column(LargeBinary)
    response: Mapped[dict[str, Any]] = mapped_column(JSON)


class MessageIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2000)
    metadata: dict[str, Any] = Field(default_factory=dict)


class MessageOut(BaseModel):
    conversation_id: uuid.UUID
    message_id: uuid.UUID


@app.middleware("http")
async def log_request(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    request_id = request.headers.get("x-request-id") or str(uuid.uuid4())
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id)
    response = await call_next(request)
    response.headers["X-Request-Id"] = request_id
    log.info("request", method=request.method, path=request.url.path, status=response.status_code)
    return response


async def database() -> AsyncIterator[AsyncSession]:
    async with open_session() as session:
        yield session


Database = Annotated[AsyncSession, Depends(database)]


async def conversation_of(
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)], db: Database
) -> Conversation:
    try:
        claims = jwt.decode(
            credentials.credentials, SECRET, algorithms=["HS256"], audience="hlas-widget"
        )
    except jwt.InvalidTokenError:
        raise HTTPException(401, "invalid_token") from None
    tenant = await db.scalar(select(Tenant).where(Tenant.id == uuid.UUID(claims["tid"])))
    if tenant is None or not tenant.is_active:
        raise HTTPException(403, "tenant_inactive")
    # Locked, so that no two messages get the same number.
    conversation = await db.scalar(
        select(Conversation)
        .where(Conversation.tenant_id == tenant.id, Conversation.id == uuid.UUID(claims["cid"]))
        .with_for_update()
    )
    if conversation is None or conversation.status != "open":
        raise HTTPException(403, "conversation_not_found")
    structlog.contextvars.bind_contextvars(tenant_id=claims["tid"], conversation_id=claims["cid"])
    return conversation


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/widget/messages")
async def create_message(
    body: MessageIn,
    db: Database,
    conversation: Annotated[Conversation, Depends(conversation_of)],
    idempotency_key: Annotated[str, Header(min_length=1, max_length=255)],
) -> MessageOut:
    scope = {"tenant_id": conversation.tenant_id, "conversation_id": conversation.id}
    key = {**scope, "key": idempotency_key}
    digest = hashlib.sha256(json.dumps(body.model_dump(), sort_keys=True).encode()).digest()
    claimed = await db.scalar(
        insert(IdempotencyKey)
        .values(**key, request_hash=digest, response={})
        .on_conflict_do_nothing()
        .returning(IdempotencyKey.key)
    )
    if claimed is None:
        return await replay(db, key, digest)
    conversation.last_seq += 1
    conversation.last_message_at = datetime.now(UTC)
    message = Message(
        **scope,
        seq=conversation.last_seq,
        role="user",
        content=body.text.strip(),
        meta=body.metadata,
    )
    db.add(message)
    await db.flush()
    answer = MessageOut(conversation_id=conversation.id, message_id=message.id)
    await db.execute(
        update(IdempotencyKey).filter_by(**key).values(response=answer.model_dump(mode="json"))
    )
    await db.commit()
    log.info("idempotency_miss")
    return answer


async def replay(db: AsyncSession, key: dict[str, Any], digest: bytes) -> MessageOut:
    stored = await db.scalar(select(IdempotencyKey).filter_by(**key))
    if stored is None or stored.request_hash != digest:
        log.warning("idempotency_conflict")
        raise HTTPException(409, "idempotency_key_conflict")
    log.info("idempotency_hit")
    return MessageOut.model_validate(stored.response)
