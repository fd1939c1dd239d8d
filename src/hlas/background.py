"""Supervised background tasks: a task that fails is logged, counted and started again."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

from hlas import log

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
# After this long without a failure the pauses start at the shortest again.
STEADY_SECONDS = 300.0
# Work under way may end by itself: cancelling it would break its database connection.
FINISH_SECONDS = 1.0

# Every background task of a worker. A fixed set, because the names are values of a label.
TaskName = Literal[
    "writer",
    "limit_overrides",
    "metrics",
    "traffic",
    "traffic_cleanup",
    "key_cleanup",
    "retention",
    "live",
    "stream_checks",
    "live_cleanup",
    "runs",
    "reservation_cleanup",
    "mcp_cleanup",
    "embedding",
    "vectors",
]
TASKS: tuple[TaskName, ...] = get_args(TaskName)

Work: TypeAlias = Callable[[], Coroutine[None, None, object]]
Start: TypeAlias = Callable[[TaskName, Work], "asyncio.Task[object]"]


def start_alone(name: TaskName, work: Work) -> "asyncio.Task[object]":
    """Start a task without supervision."""
    return asyncio.create_task(work(), name=name)


class Meter(Protocol):
    """Counts failures and shows which tasks run."""

    def count_background_failure(self, task: str) -> None: ...

    def show_background(self, task: str, *, is_running: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Whether a task runs, and how often it has failed since the worker started."""

    is_running: bool
    failures: int


@dataclass(slots=True)
class _Status:
    is_running: bool = False
    is_working: bool = False
    failures: int = 0
    failed_at: float = 0.0
    pause: float = 0.0
    longest_pause: float = LONGEST_PAUSE_SECONDS
    quiet_until: float = 0.0


class Background:
    """The background tasks of one worker."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._statuses: dict[TaskName, _Status] = {}
        self._tasks: dict[TaskName, asyncio.Task[object]] = {}
        self._is_closing = False

    def start(self, name: TaskName, work: Work) -> "asyncio.Task[object]":
        """Run `work` until it returns; start it again whenever it fails."""
        return self._start(name, work, None, 0.0)

    def every(
        self,
        seconds: float,
        name: TaskName,
        work: Work,
        *,
        first: float | None = None,
        longest_pause: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """Run `work` repeatedly, `seconds` after it ended; the first time after `first`.

        After failures it pauses for at most `longest_pause`.
        """
        self._start(name, work, seconds, seconds if first is None else first, longest_pause)

    def _start(
        self,
        name: TaskName,
        work: Work,
        seconds: float | None,
        first: float,
        longest_pause: float = LONGEST_PAUSE_SECONDS,
    ) -> "asyncio.Task[object]":
        self._statuses[name] = _Status(longest_pause=longest_pause)
        self._show(name, is_running=True)
        task: asyncio.Task[object] = asyncio.create_task(
            self._supervise(name, work, seconds, first), name=name
        )
        self._tasks[name] = task
        return task

    async def _supervise(
        self, name: TaskName, work: Work, seconds: float | None, first: float
    ) -> object:
        pause, status = first, self._statuses[name]
        try:
            while True:
                await asyncio.sleep(pause)
                self._show(name, is_running=True)
                status.is_working = True
                try:
                    await work()
                except (Exception, asyncio.CancelledError) as error:
                    if _is_stopping():
                        raise
                    pause = self._fail(name, error)
                else:
                    if seconds is None or self._is_closing:
                        return None
                    pause = seconds
                finally:
                    status.is_working = False
        finally:
            self._show(name, is_running=False)

    def _fail(self, name: TaskName, error: BaseException) -> float:
        """Log and count a failure; returns the seconds to wait before the next attempt."""
        status = self._statuses[name]
        now = asyncio.get_running_loop().time()
        self._show(name, is_running=False)
        self._meter.count_background_failure(name)
        is_repeated = status.failures > 0 and now - status.failed_at < STEADY_SECONDS
        status.failed_at = now
        status.failures += 1
        if is_repeated and now < status.quiet_until:
            return status.longest_pause
        status.pause = (
            min(2 * status.pause, LONGEST_PAUSE_SECONDS) if is_repeated else FIRST_PAUSE_SECONDS
        )
        pause = min(status.pause, status.longest_pause)
        # A task with short pauses is logged as rarely as the others; every failure is counted.
        status.quiet_until = now + status.pause - pause
        # The type and the location, never the message, which may quote a visitor.
        log.error(
            "background_failed",
            task=name,
            error=type(error).__name__,
            where=log.find_place(error),
            retry_s=pause,
        )
        return pause

    def _show(self, name: TaskName, *, is_running: bool) -> None:
        self._statuses[name].is_running = is_running
        self._meter.show_background(name, is_running=is_running)

    def report(self) -> dict[TaskName, TaskReport]:
        """The state of every task that was started."""
        return {
            name: TaskReport(status.is_running, status.failures)
            for name, status in self._statuses.items()
        }

    async def close(self) -> None:
        """Stop all tasks; returns when none is left."""
        self._is_closing = True
        working = [
            self._tasks[name] for name, status in self._statuses.items() if status.is_working
        ]
        for task in self._tasks.values():
            if task not in working:
                task.cancel()
        if working:
            await asyncio.wait(working, timeout=FINISH_SECONDS)
        for task in working:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _is_stopping() -> bool:
    """Whether this task is cancelled; a cancelled call inside the work is an ordinary failure."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
