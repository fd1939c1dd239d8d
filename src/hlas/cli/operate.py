"""Commands for operators: clean up, export, erase, check, back up and restore."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Protocol
from uuid import UUID

import typer

from hlas import settings as configuration
from hlas.cli.database import (
    AsJson,
    database_url,
    is_missing,
    prepare,
    require_database,
    show,
    with_operators,
)
from hlas.conversations import messages
from hlas.doctor.checks import examine
from hlas.doctor.finding import Finding
from hlas.errors import TenantError
from hlas.outbound.destinations import Destination
from hlas.privacy import erasure, retention
from hlas.privacy.export import export as export_data
from hlas.privacy.subjects import Count, Progress, Subject, count_data, find_subject
from hlas.settings import ConfigurationError, Settings
from hlas.store import backups
from hlas.store.db import Database

Tenant = Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")]
Visitor = Annotated[
    str | None, typer.Option(metavar="ID", help="The visitor's id, as the page gave it.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def cleanup(*, as_json: AsJson = False) -> None:
    """Delete old data.

    Conversations past their tenant's retention, and expired idempotency keys.
    """
    hours = configuration.load().idempotency_ttl_hours

    async def work(operators: Database) -> tuple[dict[str, Count], int]:
        return await retention.run(operators), await messages.reap_all_keys(operators, hours)

    retired, keys = with_operators(work)
    lines = [f"{slug}: removed {_words(done)} past retention." for slug, done in retired.items()]
    lines.append(f"Removed {keys} idempotency keys older than {hours} hours.")
    show(
        {
            "retention": {slug: done.to_dict() for slug, done in retired.items()},
            "idempotency_keys": keys,
        },
        as_json=as_json,
        text="\n".join(lines),
    )


def export(
    tenant: Tenant,
    visitor: Visitor = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file to write; without it, standard output."),
    ] = None,
    *,
    anonymous: Annotated[
        bool,
        typer.Option("--anonymous", help="Pseudonyms for visitors, and no metadata of theirs."),
    ] = False,
) -> None:
    """Write conversations and messages as JSON Lines."""

    async def work(operators: Database) -> None:
        whose = await find_subject(operators, tenant, visitor or None)
        # Lower the priority below the server's. Not earlier: a database we started inherits it.
        os.nice(10)
        with (
            _progress("Exporting", await count_data(operators, whose)) as progress,
            _open_output(output) as file,
        ):
            async for line in export_data(
                operators, whose, anonymous=anonymous, on_progress=progress
            ):
                file.write(line)

    with_operators(work)
    if output:
        typer.echo(f"Exported {tenant} to {output}.", err=True)


@contextmanager
def _open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file of mode 0600 that is renamed into place when it is complete."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise TenantError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


@contextmanager
def _progress(label: str, count: Count) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    with typer.progressbar(
        length=count.messages, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        yield bar.update


def erase(
    tenant: Tenant,
    visitor: Visitor = None,
    conversation: Annotated[
        UUID | None, typer.Option(metavar="ID", help="One conversation's id.")
    ] = None,
    *,
    anonymise: Annotated[
        bool,
        typer.Option("--anonymise", help="Keep the messages, and remove who wrote them."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a visitor's conversations, or just one. This cannot be undone."""
    if bool(visitor) == bool(conversation):
        raise TenantError("name either --visitor or --conversation")
    work = erasure.anonymise if anonymise else erasure.erase
    done = with_operators(_prepare_erasure(tenant, visitor, conversation, work, yes=yes))
    verb = "Anonymised" if anonymise else "Erased"
    show(done.to_dict(), as_json=as_json, text=f"{verb} {_words(done)} of {tenant}.")


class Erasure(Protocol):
    """Erases or anonymises a visitor's data."""

    async def __call__(
        self, operators: Database, subject: Subject, *, on_progress: Progress
    ) -> Count: ...


def _prepare_erasure(
    tenant: str, visitor: str | None, conversation: UUID | None, work: Erasure, *, yes: bool
) -> Callable[[Database], Awaitable[Count]]:
    async def run(operators: Database) -> Count:
        whose: Subject = await find_subject(operators, tenant, visitor, conversation)
        found = await count_data(operators, whose)
        if not yes:
            _ask(f"{_words(found)} of {tenant}: continue? This cannot be undone.")
        with _progress("Working", found) as progress:
            return await work(operators, whose, on_progress=progress)

    return run


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise TenantError("there is no terminal to confirm on; add --yes")
    typer.confirm(question, abort=True, err=True)


def _words(count: Count) -> str:
    return (
        f"{count.conversations} conversation{'' if count.conversations == 1 else 's'} with "
        f"{count.messages} message{'' if count.messages == 1 else 's'}"
    )


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Back up the embedded database into one file.

    The service may run meanwhile.
    """
    settings = _require_embedded("pg_dump")
    require_database(settings)
    size = backups.backup(settings.data_dir, file)
    show(
        {"file": str(file), "bytes": size},
        as_json=as_json,
        text=f"Wrote {file}, {size / 2**20:.1f} MiB. It holds all tenants' data: keep it safe.",
    )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `hlas backup` wrote.")],
    *,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Replace the embedded database by a backup.

    The service must not run. Restore only files you trust: whoever wrote one decides what tenants
    and administrators there are.
    """
    settings = _require_embedded("pg_restore")
    if not yes:
        _ask(
            f"Restore only files you trust. Replace everything in {settings.data_dir.resolve()} by "
            f"{file}?"
        )
    found = backups.restore(
        settings.data_dir,
        file,
        prefix=settings.database_role_prefix,
        secret=settings.database_login_secret,
    )
    show(
        found,
        as_json=as_json,
        text=f"Restored {found.tenants} tenants, {found.conversations} conversations and "
        f"{found.messages} messages. Restore only files you trust: administrators' keys came "
        "from this one.",
    )


def _require_embedded(program: str) -> Settings:
    settings = prepare()
    if not settings.embedded:
        raise ConfigurationError(
            f"DATABASE_URL: this server is not ours to back up or restore; use its own {program}"
        )
    return settings


MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skip": "-"}


def _address(text: str | None) -> str | None:
    """Check the address before anything is started for it."""
    destination = Destination.parse(text) if text is not None else None
    if text is not None and destination is None:
        raise typer.BadParameter("write an http or https address, such as https://shop.example/")
    return str(destination) if destination else None


def doctor(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            callback=_address,
            help="Where visitors reach Hlas: https://chat.example.com.",
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            callback=_address,
            help="A page with the widget: https://shop.example/.",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check the installation and say how to fix what is wrong. Exit status 1 if something is."""
    found = [one.printable() for one in _examine(url, page)]
    unasked = [one.name for one in found if _is_unasked(one, url, page)]
    width = max(len(one.name) for one in found)
    lines = []
    for one in found:
        if one.name in unasked:
            continue
        lines.append(f"{MARKS[one.status]:<5} {one.name:<{width}}  {one.found}")
        if one.fix and one.status != "ok":
            lines.append(f"{'':<{width + 8}}fix: {one.fix}")
    if unasked:
        lines.append(f"-     not checked: {', '.join(unasked)} (needs --page URL and --url URL)")
    show([one.to_dict() for one in found], as_json=as_json, text="\n".join(lines))
    if any(one.status == "fail" for one in found):
        raise typer.Exit(1)


def _is_unasked(one: Finding, url: str | None, page: str | None) -> bool:
    """Whether a check was skipped only because --page or --url was not given."""
    needs_page, needs_url = (
        one.name in {"allowlist", "page", "cors"},
        one.name in {"address", "background", "stream", "cors"},
    )
    unnamed = (needs_page and page is None) or (needs_url and url is None)
    return unnamed and one.status == "skip"


def _examine(service: str | None, page: str | None) -> list[Finding]:
    try:
        settings = prepare()
    except ConfigurationError as error:
        return [Finding("settings", "fail", str(error), "correct it in the environment or .env")]
    if is_missing(settings):
        return asyncio.run(examine(settings, None, service=service, page=page))
    with database_url(settings) as url:
        return asyncio.run(examine(settings, url, service=service, page=page))
