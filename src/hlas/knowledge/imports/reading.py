"""Reads documents and websites in a process of its own, bounded in time and memory.

What tenants upload is parsed by large libraries. A worker does not load them, a document that is
made to take forever ends with its process, and the process has none of our secrets.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import orjson

from hlas.errors import DocumentTooSlow, ImportBusy, UnreadableSource
from hlas.knowledge.entries import MOST_CHARACTERS, MOST_ENTRIES, Entry, KnowledgeError
from hlas.knowledge.imports import CrawlLimits
from hlas.knowledge.language import Language
from hlas.outbound.destinations import Destination

SourceKind: TypeAlias = Literal["file", "page", "site"]
Progress: TypeAlias = Callable[[int], None]

SECONDS = 30.0
# Added to the time of a crawl: to start, and to write the result.
SPARE_SECONDS = 10.0
# Limits for imports through a worker: proxies give up a request after 60 s.
MOST_AT_ONCE = 2
SHORT_CRAWL = CrawlLimits(pages=25, seconds=35.0, page_seconds=10.0)
# As many characters as a tenant can have, with what surrounds them.
LARGEST_LINE = 32 * 2**20
# What can be imported, by the end of its name.
SUFFIXES = (".html", ".htm", ".pdf", ".docx", ".md", ".csv", ".txt")
# Nothing else of our environment is needed, least of all its secrets.
ENVIRONMENT = ("PATH", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_CA_BUNDLE", "TZ")


@dataclass(frozen=True, slots=True)
class Job:
    """What to read."""

    kind: SourceKind
    # The name of a file, or an address.
    location: str
    language: Language | None = None
    limits: CrawlLimits = field(default_factory=CrawlLimits)
    # Pages of a site that were read before, to find out which are gone.
    known: tuple[str, ...] = ()
    # Hosts that the operator allows although they are private.
    private_hosts: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return (self.limits.seconds if self.kind == "site" else SECONDS) + SPARE_SECONDS


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source contains now."""

    kind: SourceKind
    location: str
    language: Language | None
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()
    # Pages that were read, or that are gone; None: all of the source was read.
    covered: frozenset[str] | None = None

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Self:
        covered = given["covered"]
        return cls(
            given["kind"],
            given["location"],
            given["language"],
            tuple(map(Entry.from_json, given["entries"])),
            tuple(given["warnings"]),
            None if covered is None else frozenset(covered),
        )

    def to_json(self) -> dict[str, object]:
        covered = None if self.covered is None else sorted(self.covered)
        return {**asdict(self), "covered": covered}


def normalise(job: Job) -> Job:
    """The job with its address in one spelling, so that it is one source."""
    if job.kind == "file":
        return job
    text = job.location.strip()
    destination = Destination.parse(text if "://" in text else f"https://{text}")
    if destination is None:
        raise UnreadableSource(f"{text}: it is not the address of a page or a website")
    return replace(job, location=str(destination))


class SourceReader:
    """Reads sources for the administrators of a worker: few at a time, one for a tenant."""

    def __init__(self, private_hosts: Sequence[str]) -> None:
        self._private_hosts = tuple(private_hosts)
        self._tenants: set[str] = set()

    async def read(
        self,
        tenant_id: str,
        job: Job,
        data: bytes = b"",
        on_page: Progress = lambda _pages: None,
    ) -> Reading:
        if tenant_id in self._tenants or len(self._tenants) >= MOST_AT_ONCE:
            raise ImportBusy
        self._tenants.add(tenant_id)
        try:
            return await read(replace(job, private_hosts=self._private_hosts), data, on_page)
        finally:
            self._tenants.discard(tenant_id)


async def read(job: Job, data: bytes = b"", on_page: Progress = lambda _pages: None) -> Reading:
    """Raises UnreadableSource with one line that says why."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "hlas.knowledge.imports"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        limit=LARGEST_LINE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(job.seconds):
            line = await _exchange(process, job, data, on_page)
    except TimeoutError:
        raise DocumentTooSlow(f"{job.location}: reading it takes too long") from None
    finally:
        # With the process that it has started to parse a document.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return _take(job, line)


async def _exchange(
    process: asyncio.subprocess.Process, job: Job, data: bytes, on_page: Progress
) -> bytes:
    """Send the job; returns the last line, which is its outcome."""
    assert process.stdin is not None
    assert process.stdout is not None
    # It may end before it has read everything.
    with suppress(ConnectionError):
        process.stdin.write(orjson.dumps(asdict(job)) + b"\n" + data)
        await process.stdin.drain()
    process.stdin.close()
    pages, last = 0, b""
    try:
        async for line in process.stdout:
            last = line
            if line == b"page\n":
                pages += 1
                on_page(pages)
    except ValueError:
        raise UnreadableSource(f"{job.location}: it contains too much text") from None
    return last


def _take(job: Job, line: bytes) -> Reading:
    try:
        outcome = orjson.loads(line)
    except orjson.JSONDecodeError:
        # It was killed, or ran out of memory.
        raise DocumentTooSlow(f"{job.location}: reading it takes too much time or memory") from None
    if "error" in outcome:
        raise UnreadableSource(outcome["error"])
    return Reading.from_json(outcome)


def dump(reading: Reading) -> bytes:
    """The outcome of a job, in the process that does it."""
    if len(reading.entries) > MOST_ENTRIES:
        raise KnowledgeError(f"{reading.location}: more than {MOST_ENTRIES} entries")
    if sum(one.count_characters() for one in reading.entries) > MOST_CHARACTERS:
        raise KnowledgeError(f"{reading.location}: more than {MOST_CHARACTERS} characters of text")
    return orjson.dumps(reading.to_json())
