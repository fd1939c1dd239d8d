"""Whether the models that tenants use can be reached, without a request that costs money."""

import asyncio

from hlas.agent.providers.models import Model
from hlas.doctor.finding import Finding
from hlas.doctor.streams import AWAY
from hlas.outbound.fetch import Unreachable, fetch
from hlas.settings import ConfigurationError, Settings
from hlas.store.db import Queries, Row, log_in
from hlas.store.logins import OPERATOR, Logins
from hlas.store.vault import Vault

queries = Queries.beside(__file__)


async def check(logins: Logins | None, settings: Settings) -> Finding:
    """Ask each provider for its list of models, which is free; the knowledge answers meanwhile."""
    if logins is None:
        return Finding("models", "skip", "there is no database yet")
    try:
        rows = await _list_used(logins)
    except AWAY:
        return Finding("models", "skip", "the database cannot be queried")
    if not rows:
        return Finding("models", "skip", "no tenant uses a model: answers come from the knowledge")
    try:
        vault = Vault.from_settings(settings)
        used = [Model.from_row(row, vault) for row in rows]
    except ConfigurationError as error:
        fix = "set SECRETS_KEY to what it was, or store the keys again with `hlas model set`"
        return Finding("models", "fail", f"a key cannot be read: {error}", fix)
    problems = await asyncio.gather(*(_find_problem(model) for model in used))
    bad = {model.name: problem for model, problem in zip(used, problems, strict=True) if problem}
    if bad:
        found = "; ".join(f"{name}: {problem}" for name, problem in bad.items())
        fix = f"start it, or check its address and key; `hlas model test {next(iter(bad))}` asks it"
        return Finding("models", "fail", found, fix)
    names = ", ".join(model.name for model in used)
    return Finding("models", "ok", f"they answer: {names}; `hlas model test` also asks them")


async def _list_used(logins: Logins) -> list[Row]:
    connection = await log_in(logins, OPERATOR)
    try:
        return list(await connection.fetch(queries.list_used))
    finally:
        await connection.close()


async def _find_problem(model: Model) -> str:
    """Only what is certain: not every provider has a list of models."""
    url, key = f"{model.base_url.rstrip('/')}/models", model.key
    try:
        fetched = await (fetch(url, Authorization=f"Bearer {key}") if key else fetch(url))
    except Unreachable as error:
        return f"it cannot be reached ({error})"
    if fetched.status in {401, 403}:
        return f"the provider does not accept the key ({fetched.status})"
    return f"the provider answers {fetched.status}" if fetched.status >= 500 else ""
