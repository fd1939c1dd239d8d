"""Whether answers are ranked by meaning, with which model, and how many entries wait for it."""

import asyncio

from hlas.agent.embedder import describe
from hlas.agent.providers import models
from hlas.doctor.finding import Finding
from hlas.doctor.streams import AWAY
from hlas.knowledge.embedding import installation
from hlas.knowledge.embedding.embedders import ProcessEmbedder
from hlas.knowledge.embedding.protocol import ProtocolError
from hlas.knowledge.embedding.runtime import find_socket
from hlas.settings import ConfigurationError, Settings
from hlas.store.db import Queries, Row, log_in
from hlas.store.logins import OPERATOR, Logins

queries = Queries.beside(__file__)

SECONDS = 3.0
WORDS_ONLY = "answers are found by their words alone"


async def check(logins: Logins | None, settings: Settings) -> Finding:
    """Ask the embedding process of this host; the entries are counted in the database."""
    if not installation.is_wanted(settings):
        return Finding("semantic", "skip", f"EMBEDDING_MODEL is off: {WORDS_ONLY}")
    if missing := installation.list_missing(settings):
        found = f"{', '.join(missing)} not installed: {WORDS_ONLY}"
        fix = "install Hlas with the extra semantic, or set EMBEDDING_MODEL=off"
        return Finding("semantic", "warn", found, fix)
    if logins is None:
        return Finding("semantic", "skip", "there is no database yet")
    socket = find_socket(settings.data_dir)
    try:
        async with asyncio.timeout(SECONDS):
            model = (await ProcessEmbedder(socket).find_model()).name
    except (OSError, EOFError, ProtocolError):
        found = f"the embedding process of this host does not answer at {socket}: {WORDS_ONLY}"
        fix = (
            "run the doctor as the user of the service, with its DATA_DIR, while it runs; the log "
            "says `embedding_model_refused`, `embedding_ended` or `embedding_unavailable`"
        )
        return Finding("semantic", "warn", found, fix)
    try:
        return await _check_entries(logins, settings, model)
    except (*AWAY, ConfigurationError):
        return Finding("semantic", "skip", "the database cannot be queried")


async def _check_entries(logins: Logins, settings: Settings, model: str) -> Finding:
    connection = await log_in(logins, OPERATOR)
    try:
        if name := settings.embedding_model:
            provider = await connection.fetchrow(models.queries.model_by_name, name)
            if provider is None:
                fix = "add it with `hlas model add`, or correct EMBEDDING_MODEL"
                return Finding("semantic", "fail", f"there is no model {name!r}", fix)
            model = describe(provider["name"], provider["base_url"], provider["model"]).name
        row: Row = await connection.fetchrow(queries.count_vectors, model)
    finally:
        await connection.close()
    found = f"on, with {model}; {row['done']} of {row['entries']} entries have vectors"
    if row["done"] == row["entries"]:
        return Finding("semantic", "ok", found)
    fix = "wait: they are made in the background, and until then found by their words"
    return Finding("semantic", "warn", found, fix)
