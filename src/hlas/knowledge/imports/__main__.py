"""The process that reads one document or website: `reading.py` starts it."""

import asyncio
import math
import resource
import signal
import sys
from dataclasses import replace

import orjson

from hlas.errors import TenantError
from hlas.knowledge.imports import CrawlLimits, Found, PageGone
from hlas.knowledge.imports.crawl import crawl, read_page
from hlas.knowledge.imports.documents import read_document
from hlas.knowledge.imports.processes import limit
from hlas.knowledge.imports.reading import Job, Reading, dump
from hlas.outbound.client import OutboundClient

LARGEST_MEMORY = 2**30


def main() -> None:
    job = _read_job(sys.stdin.buffer.readline())
    # It ends by itself, too: the worker that started it may have been killed.
    signal.alarm(math.ceil(job.seconds) + 1)
    limit(resource.RLIMIT_AS, LARGEST_MEMORY)
    limit(resource.RLIMIT_CORE, 0)
    try:
        outcome = dump(asyncio.run(_work(job, sys.stdin.buffer.read())))
    except TenantError as error:
        outcome = orjson.dumps({"error": str(error)})
    except MemoryError:
        outcome = orjson.dumps({"error": f"{job.location}: needs too much memory to be read"})
    sys.stdout.buffer.write(outcome)


def _read_job(line: bytes) -> Job:
    given = orjson.loads(line)
    return Job(**{**given, "limits": CrawlLimits(**given["limits"])})


async def _work(job: Job, data: bytes) -> Reading:
    if job.kind == "file":
        return _make_reading(job, read_document(job.location, data, language=job.language))
    client = OutboundClient(frozenset(job.private_hosts))
    try:
        return await (_read_site(client, job) if job.kind == "site" else _read_page(client, job))
    finally:
        await client.close()


def _make_reading(job: Job, found: Found) -> Reading:
    return Reading(job.kind, job.location, job.language, found.entries, found.warnings)


async def _read_page(client: OutboundClient, job: Job) -> Reading:
    try:
        return _make_reading(job, await read_page(client, job.location, job.language))
    except PageGone as error:
        if not job.known:
            raise
        return _make_reading(job, Found((), (str(error),)))


async def _read_site(client: OutboundClient, job: Job) -> Reading:
    site = await crawl(
        client, job.location, job.limits, lambda _page: _tell(), job.language, job.known
    )
    warnings = [*site.warnings]
    for page in site.pages:
        warnings += [f"{page.url}: {page.error}"] if page.error else []
        warnings += [f"{page.url}: {line}" for line in page.found.warnings] if page.found else []
    return replace(_make_reading(job, Found(site.entries, tuple(warnings))), covered=site.covered)


def _tell() -> None:
    sys.stdout.buffer.write(b"page\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
