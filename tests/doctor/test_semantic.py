"""The doctor says whether answers are ranked by meaning, with which model, and what is missing."""

from pathlib import Path
from typing import Any

import pytest

from embedding import make_host_settings, needs_extra, open_worker, run_host
from factories import make_settings
from hlas.agent.providers import models
from hlas.agent.providers.models import NewModel
from hlas.doctor import semantic
from hlas.doctor.finding import Finding
from hlas.knowledge import entries
from hlas.knowledge.embedding import installation
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from hlas.store.logins import Logins
from hlas.store.vault import Vault
from hlas.tenants import tenants

ENTRIES = [Entry("When are you open?", "From 9 to 17."), Entry("Delivery?", "99 crowns.")]


async def examine(database_url: str, data_dir: Path, **settings: Any) -> Finding:
    values = {"embedding_model": "", **settings}
    return await semantic.check(
        Logins(database_url), make_settings(database_url, data_dir=data_dir, **values)
    )


async def test_off(database_url: str, tmp_path: Path) -> None:
    """EMBEDDING_MODEL=off is what somebody wants: nothing to fix."""
    found = await examine(database_url, tmp_path, embedding_model="off")
    assert found == Finding(
        "semantic", "skip", "EMBEDDING_MODEL is off: answers are found by their words alone"
    )


async def test_not_installed(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra the packages that are missing are named."""
    monkeypatch.setattr(
        installation, "find_spec", lambda name: None if name == "onnxruntime" else object()
    )
    found = await examine(database_url, tmp_path)
    assert (found.status, found.found) == (
        "warn",
        "onnxruntime not installed: answers are found by their words alone",
    )
    assert "extra semantic" in found.fix


@needs_extra
async def test_no_process(database_url: str, tmp_path: Path) -> None:
    """Nothing listens: the finding names the socket and where to look."""
    found = await examine(database_url, tmp_path)
    assert (found.status, f"does not answer at {tmp_path}" in found.found) == ("warn", True)
    assert "embedding_model_refused" in found.fix
    assert make_host_settings(tmp_path).data_dir == tmp_path


@needs_extra
async def test_progress(database_url: str, database: Database, operators: Database) -> None:
    """The model, and how many entries have its vectors; all of them: ok."""
    shop = await tenants.add(operators, "Shop", "shop", [])
    await entries.save(operators, shop.id, ENTRIES, source="test")
    async with run_host() as host, open_worker(host.socket, database, operators) as worker:
        data_dir = host.settings.data_dir
        found = await examine(database_url, data_dir)
        assert (found.status, "0 of 2 entries have vectors" in found.found) == ("warn", True)
        await worker.maker.tick()
        found = await examine(database_url, data_dir)
        assert found.status == "ok"
        assert found.found.startswith("on, with minilm-int8-8199be6f+")
        assert found.found.endswith("; 2 of 2 entries have vectors")
        changed = Entry(ENTRIES[0].question, "Never.")
        await entries.save(operators, shop.id, [changed], source="test")
        found = await examine(database_url, data_dir)
        assert (found.status, "1 of 2 entries have vectors" in found.found) == ("warn", True)


@needs_extra
async def test_endpoint(database_url: str, operators: Database) -> None:
    """EMBEDDING_MODEL that was never added fails; otherwise its vectors are counted."""
    async with run_host(embedding_model="vectors") as host:
        data_dir = host.settings.data_dir
        found = await examine(database_url, data_dir, embedding_model="vectors")
        assert (found.status, found.found) == ("fail", "there is no model 'vectors'")
        url = "https://models.example/v1"
        new = NewModel(name="vectors", base_url=url, model="embed-1", is_free=True)
        await models.add(operators, Vault(""), new)
        found = await examine(database_url, data_dir, embedding_model="vectors")
        assert (found.status, "on, with vectors@" in found.found) == ("ok", True)
