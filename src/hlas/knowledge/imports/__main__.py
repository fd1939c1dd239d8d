"""The process that reads one document or website: `reading.py` starts it."""

import asyncio
import math
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

import orjson

from hlas.errors import TenantError
from hlas.knowledge.entries import Entry
from hlas.knowledge.imports import Limits, PageGone, reading
from hlas.knowledge.imports.crawl import crawl, read_page
from hlas.knowledge.imports.documents import read_document
from hlas.knowledge.imports.reading import Job
from hlas.outbound.client import OutboundClient

LARGEST_MEMORY = 2**30
# Of pages that were read before and are not linked any more.
MOST_CHECKS = 100


def main() -> None:
    job = _read_job(sys.stdin.buffer.readline())
    # It ends by itself, too: the worker that started it may have been killed.
    signal.alarm(math.ceil(job.seconds) + 1)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_MEMORY, LARGEST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        outcome = asyncio.run(_work(job, sys.stdin.buffer.read()))
    except TenantError as error:
        outcome = orjson.dumps({"error": str(error)})
    sys.stdout.buffer.write(outcome)


def _read_job(line: bytes) -> Job:
    given = orjson.loads(line)
    return Job(**{**given, "limits": Limits(**given["limits"])})


async def _work(job: Job, data: bytes) -> bytes:
    if job.kind == "file":
        found = read_document(job.location, data, language=job.language)
        return reading.dump(job.location, found.entries, found.warnings, None)
    client = OutboundClient(frozenset(job.private_hosts))
    try:
        return await (_read_site(client, job) if job.kind == "site" else _read_page(client, job))
    finally:
        await client.close()


async def _read_page(client: OutboundClient, job: Job) -> bytes:
    try:
        found = await read_page(client, job.location, job.language)
    except PageGone as error:
        if not job.known:
            raise
        return reading.dump(job.location, (), [str(error)], None)
    return reading.dump(job.location, found.entries, found.warnings, None)


async def _read_site(client: OutboundClient, job: Job) -> bytes:
    site = await crawl(client, job.location, job.limits, lambda _page: _tell(), job.language)
    read = [page for page in site.pages if page.found]
    covered = {page.url for page in read} | {page.url for page in site.pages if page.is_gone}
    entries = list(site.entries)
    warnings = [*site.warnings]
    for page in site.pages:
        warnings += [f"{page.url}: {page.error}"] if page.error else []
        warnings += page.found.warnings if page.found else ()
    tried = {page.url for page in site.pages}
    left = [url for url in job.known if url not in tried]
    for url in left[:MOST_CHECKS]:
        added, problem = await _check(client, job, url)
        covered |= {url} if added is not None else set()
        entries += _without_repeats(added or (), entries)
        warnings += [problem] if problem else []
        _tell()
    return reading.dump(job.location, entries, warnings, sorted(covered))


async def _check(client: OutboundClient, job: Job, url: str) -> tuple[Sequence[Entry] | None, str]:
    """The entries of a page that is not linked any more; none if it is gone, None if unknown."""
    try:
        found = await read_page(client, url, job.language)
    except PageGone:
        return (), ""
    except TenantError as error:
        return None, str(error)
    return [replace(one, url=url) for one in found.entries], ""


def _without_repeats(added: Sequence[Entry], known: Sequence[Entry]) -> list[Entry]:
    taken = {one.question for one in known}
    return [one for one in added if one.question not in taken]


def _tell() -> None:
    sys.stdout.buffer.write(b"page\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
