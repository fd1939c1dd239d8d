"""Makes vectors with the embeddings endpoint of a configured model, and pays for them."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress

import uuid_utils

from hlas import log
from hlas.agent.money.spend import BudgetUsedUp, Ledger, Payer
from hlas.agent.providers import embeddings, models
from hlas.agent.providers.chat import ChatClient, ModelError, Tokens
from hlas.agent.providers.models import Model as Provider
from hlas.errors import HlasError, ModelNotFound, VaultShut
from hlas.knowledge.embedding.embedders import ENDPOINT_SECONDS, BadText, Model, NoVector
from hlas.store.db import Database
from hlas.store.vault import Vault

# The time limit for the texts of one entry.
ENTRY_SECONDS = 30.0
# A changed model is noticed after this time.
REMEMBER_SECONDS = 30.0
# Refused because of what the text is, not because of who asks or how often.
BAD_TEXT = frozenset({"status_400", "status_413", "status_422"})


class EndpointEmbedder:
    """Each tenant pays for its own questions and entries."""

    seconds = ENDPOINT_SECONDS

    def __init__(
        self, operators: Database, vault: Vault, client: ChatClient, ledger: Ledger, name: str
    ) -> None:
        self._operators = operators
        self._vault = vault
        self._client = client
        self._ledger = ledger
        self._name = name
        self._provider: Provider | None = None
        self._forget_at = 0.0

    async def find_model(self) -> Model:
        return _describe(await self._find_provider())

    def forget_model(self) -> None:
        self._provider = None

    async def embed_question(self, model: Model, tenant_id: str, text: str) -> bytes:
        return (await self._embed(model, tenant_id, [text], self.seconds))[0]

    async def embed_texts(self, model: Model, tenant_id: str, texts: Sequence[str]) -> list[bytes]:
        return await self._embed(model, tenant_id, texts, ENTRY_SECONDS)

    async def _find_provider(self) -> Provider:
        now = asyncio.get_running_loop().time()
        if self._provider is None or now > self._forget_at:
            try:
                self._provider = await models.find(self._operators, self._vault, self._name)
            except (ModelNotFound, VaultShut):
                raise NoVector("endpoint") from None
            self._forget_at = now + REMEMBER_SECONDS
        return self._provider

    async def _embed(
        self, model: Model, tenant_id: str, texts: Sequence[str], seconds: float
    ) -> list[bytes]:
        provider = await self._find_provider()
        if _describe(provider) != model:
            raise NoVector("other_model")
        try:
            return await self._pay_and_ask(provider, tenant_id, texts, seconds)
        except BudgetUsedUp:
            raise NoVector("budget") from None
        except ModelError as error:
            log.warning("model_failed", model=provider.name, code=error.code)
            if error.code in BAD_TEXT:
                raise BadText from None
            raise NoVector("endpoint") from None

    async def _pay_and_ask(
        self, provider: Provider, tenant_id: str, texts: Sequence[str], seconds: float
    ) -> list[bytes]:
        body = embeddings.encode(provider, texts)
        if provider.input_price == 0:
            return (await self._ask(provider, body, len(texts), seconds)).vectors
        # The cap of a conversation is for its answers: this has none, so only the others count.
        nobody = str(uuid_utils.uuid7())
        reservation = await self._ledger.reserve(
            Payer(tenant_id, nobody, nobody), provider, body, 0
        )
        tokens: Tokens | None = None
        is_released = False
        try:
            embedded = await self._ask(provider, body, len(texts), seconds)
            tokens = embedded.tokens
        except ModelError as error:
            is_released = not error.may_be_paid
            raise
        finally:
            settling = (
                self._ledger.release(reservation)
                if is_released
                else self._ledger.settle(reservation, provider, tokens)
            )
            # A reservation that is never settled counts in full.
            with suppress(HlasError):
                await asyncio.shield(asyncio.ensure_future(settling))
        return embedded.vectors

    async def _ask(
        self, provider: Provider, body: bytes, count: int, seconds: float
    ) -> embeddings.Embedded:
        answer = await self._client.post(
            provider,
            embeddings.PATH,
            body,
            seconds=seconds,
            most_bytes=count * embeddings.BYTES_PER_TEXT,
        )
        return embeddings.read(answer, count)


def describe(name: str, base_url: str, model: str) -> Model:
    """Vectors of another model behind the same name, or at another address, are others."""
    digest = hashlib.sha256(f"{base_url}\n{model}".encode()).hexdigest()
    return Model(f"{name}@{digest[:8]}", is_english=False)


def _describe(provider: Provider) -> Model:
    return describe(provider.name, provider.base_url, provider.model)
