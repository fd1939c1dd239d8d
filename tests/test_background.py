"""Supervised background tasks.

Fails with these defects planted: a failure that ends the task, a pause that does not grow, a
cancelled call taken for the end of the worker, a task that is not stopped, one that is not started.
"""

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

import log_scan
from factories import Live, Site, make_site, serve_app
from hlas import background, services
from hlas.background import TASKS, Background, TaskReport
from hlas.doctor import probes, website
from hlas.doctor.website import Service
from hlas.observe.metrics import Metrics
from hlas.privacy import retention
from hlas.settings import Settings
from hlas.store.db import Database

QUIET = "what a visitor wrote"
# Those of a server without ranking by meaning, as most tests have it.
RUNNING = tuple(name for name in TASKS if name not in {"embedding", "vectors"})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(background, "LONGEST_PAUSE_SECONDS", 0.04)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.01)


class Work:
    """Fails as often as configured, then keeps running."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.runs = 0

    async def run(self, *_: object) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)


def failures(live: Live) -> list[dict[str, Any]]:
    return live.events("background_failed")


def sample(metrics: Metrics, name: str, task: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"task": task})


@pytest.fixture
def log_only(logs: io.BytesIO) -> Live:
    """The log alone, without a server."""
    return Live("", None, logs, None)  # type: ignore[arg-type]  # not used


async def test_failure(log_only: Live) -> None:
    """A failure is logged without its message, counted, and followed by ever longer pauses."""
    metrics = Metrics()
    supervisor = Background(metrics)
    work = Work(*(ValueError(QUIET) for _ in range(4)))
    supervisor.every(3600, "retention", work.run, first=0)
    await wait_until(lambda: work.runs == 5)
    lines = failures(log_only)
    assert [line["retry_s"] for line in lines] == [0.01, 0.02, 0.04, 0.04]
    for line in lines:
        assert (line["level"], line["task"], line["error"]) == ("error", "retention", "ValueError")
        assert line["where"].startswith("run:")
    assert QUIET.encode() not in log_only.log_stream.getvalue()
    assert supervisor.report() == {"retention": TaskReport(is_running=True, failures=4)}
    assert sample(metrics, "hlas_background_failures_total", "retention") == 4
    assert sample(metrics, "hlas_background_running", "retention") == 1
    await supervisor.close()
    assert sample(metrics, "hlas_background_running", "retention") == 0


async def test_pause_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that failed is not shown as running until it is started again."""
    monkeypatch.setattr(background, "FIRST_PAUSE_SECONDS", 3600.0)
    metrics = Metrics()
    supervisor = Background(metrics)
    supervisor.every(3600, "traffic", Work(OSError()).run, first=0)
    await wait_until(lambda: supervisor.report()["traffic"].failures == 1)
    assert supervisor.report() == {"traffic": TaskReport(is_running=False, failures=1)}
    assert sample(metrics, "hlas_background_running", "traffic") == 0
    await supervisor.close()


async def test_longest_pause(log_only: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that must not pause for long is tried again soon; its log lines stay as rare."""
    monkeypatch.setattr(background, "FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(background, "LONGEST_PAUSE_SECONDS", 3600.0)
    metrics = Metrics()
    supervisor = Background(metrics)
    work = Work(*(OSError() for _ in range(4)))
    supervisor.every(3600, "runs", work.run, first=0, longest_pause=0.01)
    await wait_until(lambda: work.runs == 5)
    assert [line["retry_s"] for line in failures(log_only)] == [0.01]
    assert sample(metrics, "hlas_background_failures_total", "runs") == 4
    await supervisor.close()


async def test_steady_work_starts_over(log_only: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long time without a failure the pauses start from the shortest again."""
    monkeypatch.setattr(background, "STEADY_SECONDS", 0.0)
    supervisor = Background(Metrics())
    work = Work(OSError(), OSError(), OSError())
    supervisor.start("writer", work.run)
    await wait_until(lambda: work.runs == 4)
    assert [line["retry_s"] for line in failures(log_only)] == [0.01, 0.01, 0.01]
    await supervisor.close()


async def test_cancelled_call(log_only: Live) -> None:
    """A cancelled call inside a task is a failure; it does not end the task."""
    supervisor = Background(Metrics())
    work = Work(asyncio.CancelledError())
    supervisor.every(3600, "traffic", work.run, first=0)
    await wait_until(lambda: work.runs == 2)
    assert [line["error"] for line in failures(log_only)] == ["CancelledError"]
    await supervisor.close()


async def test_every() -> None:
    """Periodic work runs repeatedly; the first time after `first`, or after its interval."""
    supervisor = Background(Metrics())
    often, soon, later = Work(), Work(), Work()
    supervisor.every(0.01, "metrics", often.run)
    supervisor.every(3600, "traffic", soon.run, first=0)
    supervisor.every(3600, "retention", later.run)
    await wait_until(lambda: often.runs > 3)
    assert (soon.runs, later.runs) == (1, 0)
    await supervisor.close()


async def test_finished_work() -> None:
    """A task that returns has finished: it is not started again and does not count as failed."""
    supervisor = Background(Metrics())
    work = Work()
    await supervisor.start("writer", work.run)
    assert work.runs == 1
    assert supervisor.report() == {"writer": TaskReport(is_running=False, failures=0)}


async def test_stop_during_work(log_only: Live) -> None:
    """Stopping cancels tasks during their work and during a pause, and is not a failure."""
    supervisor = Background(Metrics())
    stuck = asyncio.Event()
    task = supervisor.start("writer", stuck.wait)
    supervisor.every(3600, "retention", Work().run)
    await asyncio.sleep(0)
    await supervisor.close()
    assert task.cancelled()
    assert [one for one in asyncio.all_tasks() if one.get_name() in TASKS] == []
    assert failures(log_only) == []


async def test_every_task_runs(live_server: Live) -> None:
    """A served application runs all named tasks, each in /metrics from the start."""
    report = live_server.app.state.services.background.report()
    assert report == {name: TaskReport(is_running=True, failures=0) for name in RUNNING}
    text = (await live_server.client.get("/metrics")).text
    for name in RUNNING:
        assert f'hlas_background_running{{task="{name}"}} 1.0' in text
        assert f'hlas_background_failures_total{{task="{name}"}} 0.0' in text


async def test_running_server(
    settings: Settings, logs: io.BytesIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that fails in a running server is logged, counted, reported and restarted."""
    work = Work(RuntimeError(QUIET), RuntimeError(QUIET))
    monkeypatch.setattr(retention, "run", work.run)
    monkeypatch.setattr(services, "FIRST_RETENTION_SECONDS", 0.0)
    async with serve_app(settings, logs) as live:
        await wait_until(lambda: work.runs == 3)
        assert [(line["task"], line["error"]) for line in failures(live)] == [
            ("retention", "RuntimeError")
        ] * 2
        text = (await live.client.get("/metrics")).text
        assert 'hlas_background_failures_total{task="retention"} 2.0' in text
        assert 'hlas_background_running{task="retention"} 1.0' in text
        found = await website.check_background(Service(live.url, log_scan.SECRET))
        assert (found.status, found.found) == (
            "ok",
            f"all {len(RUNNING)} background tasks run; failures since its start: retention 2",
        )
    assert [one for one in asyncio.all_tasks() if one.get_name() in TASKS] == []


async def test_doctor(
    settings: Settings, logs: io.BytesIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor reports a task that is not running; callers without the secret learn nothing."""
    monkeypatch.setattr(background, "FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(retention, "run", Work(RuntimeError(QUIET)).run)
    monkeypatch.setattr(services, "FIRST_RETENTION_SECONDS", 0.0)
    async with serve_app(settings, logs) as live:
        await wait_until(lambda: bool(failures(live)))
        found = await website.check_background(Service(live.url, log_scan.SECRET))
        assert (found.status, found.found) == (
            "fail",
            "retention failed and will be started again; failures since its start: retention 1",
        )
        assert "`background_failed`" in found.fix
        stranger = await website.check_background(Service(live.url, "x" * 40))
        assert stranger.status == "skip"
        wrong = {"Authorization": f"Bearer {probes.issue('x' * 40)}"}
        assert (await live.client.get("/health", headers=wrong)).json() == {"status": "ok"}


async def test_writer(site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a bug ends the writer's loop, it is started again and writes the queue."""
    writer = site.live.app.state.services.writer
    gather, crash = writer._gather, Work(RuntimeError(QUIET))

    async def crash_once() -> None:
        await crash.run()
        await gather()

    monkeypatch.setattr(writer, "_gather", crash_once)
    assert (await site.send("hello")).status_code == 200
    assert [line["task"] for line in failures(site.live)] == ["writer"]
    assert [one["content"] for one in (await site.history())["messages"]] == ["hello"]


async def test_database_away(site: Site, operators: Database) -> None:
    """Tasks that cannot reach the database fail, and continue when it is back."""
    supervisor = site.live.app.state.services.background
    own = site.live.app.state.services
    await own.operators._pool.close()
    await wait_until(lambda: supervisor.report()["limit_overrides"].failures > 1)
    assert {line["error"] for line in failures(site.live)} == {"Unavailable"}
    other = await make_site(site.live, operators)
    assert (await other.send("hello")).status_code == 200
