"""The doctor asks the models that are in use whether they answer, and pays for nothing."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from aiohttp import web

import log_scan
from factories import make_settings
from hlas.agent import agent_settings
from hlas.agent.providers import models
from hlas.agent.providers.models import NewModel
from hlas.doctor.finding import Finding
from hlas.doctor.models import check
from hlas.store.db import Database
from hlas.store.logins import Logins
from hlas.store.vault import Vault
from hlas.tenants import tenants

SECRETS_KEY = "a key for tests that is long enough"
KEY = "sk-provider-0123456789abcdef"


class Provider:
    """Answers every request with a status."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[tuple[str, str, str | None]] = []
        self.url = ""

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        authorization = request.headers.get("Authorization")
        self.asked.append((request.method, request.path, authorization))
        return web.json_response({"data": []}, status=self.status)


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    runner = web.ServerRunner(web.Server(made))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    await runner.cleanup()


async def use_model(operators: Database, url: str, key: str | None = None) -> UUID:
    """A tenant whose agent has the model; returns its id."""
    new = NewModel(name="gpt", base_url=url, model="tiny", key=key, is_free=True)
    await models.add(operators, Vault(SECRETS_KEY), new)
    shop = await tenants.add(operators, "Shop", "shop", [])
    await agent_settings.update(operators, shop, {"models": ["gpt"]})
    return shop.id


async def examine(database_url: str, secrets_key: str = SECRETS_KEY) -> Finding:
    settings = make_settings(database_url, secrets_key=secrets_key)
    return await check(Logins(database_url), settings)


@pytest.mark.parametrize("status", [200, 404])
async def test_answers(
    database_url: str, operators: Database, provider: Provider, status: int
) -> None:
    """One GET with the key; an address without a list of models is fine, too."""
    log_scan.hear(KEY)
    provider.status = status
    await use_model(operators, provider.url, KEY)
    found = await examine(database_url)
    assert (found.status, "gpt" in found.found) == ("ok", True)
    assert provider.asked == [("GET", "/v1/models", f"Bearer {KEY}")]


@pytest.mark.parametrize(
    ("status", "said"), [(401, "does not accept the key (401)"), (503, "the provider answers 503")]
)
async def test_refuses(
    database_url: str, operators: Database, provider: Provider, status: int, said: str
) -> None:
    """A provider that refuses the key or is broken is named, without the key."""
    log_scan.hear(KEY)
    provider.status = status
    await use_model(operators, provider.url, KEY)
    found = await examine(database_url)
    assert (found.status, said in found.found) == ("fail", True)
    assert "`hlas model test gpt`" in found.fix
    assert KEY not in str(found)


async def test_away(database_url: str, operators: Database) -> None:
    """Nothing answers at the address."""
    await use_model(operators, "http://127.0.0.1:1/v1")
    found = await examine(database_url)
    assert (found.status, "gpt: it cannot be reached" in found.found) == ("fail", True)


async def test_wrong_secrets_key(
    database_url: str, operators: Database, provider: Provider
) -> None:
    """A key that cannot be opened is a finding, and nothing is sent."""
    log_scan.hear(KEY)
    await use_model(operators, provider.url, KEY)
    for other in ("another key that is long enough, too", ""):
        found = await examine(database_url, other)
        assert (found.status, "SECRETS_KEY" in found.found) == ("fail", True)
    assert provider.asked == []


async def test_not_used(database_url: str, operators: Database, provider: Provider) -> None:
    """Models of nobody, and of tenants that are off, are not asked."""
    shop = await use_model(operators, provider.url)
    assert (await examine(database_url)).status == "ok"
    provider.asked.clear()
    await operators.execute("update tenants set is_active = false where id = $1", shop)
    assert (await examine(database_url)).status == "skip"
    assert provider.asked == []
