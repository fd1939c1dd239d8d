"""Work that takes a while, on a page that grows: what happens is shown without a script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from fastapi import Response
from fastapi.responses import StreamingResponse
from markupsafe import Markup

from hlas import errors
from hlas.api.console import pages
from hlas.api.console.access import Visit
from hlas.tenants.tenants import Tenant

# Tells the reader of the page, in a line, what is being done.
Tell: TypeAlias = Callable[[str], None]

# Proxies give up an answer that says nothing for a minute.
KEEP_ALIVE_SECONDS = 10.0
KEEP_ALIVE = "<!-- -->\n"
# In the template: the lines and the outcome come here.
PLACE = "<!-- grows here -->"
LINE = Markup("<p>{}…</p>\n")
PROBLEM = Markup('<p class="note bad" role="alert">{}</p>')


def stream(
    visit: Visit, tenant: Tenant, title: str, work: Callable[[Tell], Awaitable[str]]
) -> Response:
    """A page that shows what `work` tells, and then what it returns; it ends with its reader."""
    page = visit.render("progress.html", tenant=tenant, title=title)
    return StreamingResponse(
        _grow(page, work), headers=pages.make_headers(), media_type="text/html"
    )


async def _grow(page: str, work: Callable[[Tell], Awaitable[str]]) -> AsyncIterator[str]:
    opening, _, ending = page.partition(PLACE)
    yield opening
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    task = asyncio.ensure_future(work(lines.put_nowait))
    task.add_done_callback(lambda _: lines.put_nowait(None))
    try:
        while not (task.done() and lines.empty()):
            try:
                line = await asyncio.wait_for(lines.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                yield KEEP_ALIVE
                continue
            if line is not None:
                yield LINE.format(line)
        yield f"</div>{await task}"
    except errors.HlasError as error:
        yield f"</div>{PROBLEM.format(error.message)}"
    finally:
        task.cancel()
        await asyncio.wait([task])
    yield ending
