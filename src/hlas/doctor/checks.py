"""The checks of `hlas doctor`, one for each common problem, and how to fix it."""

import math
import shutil
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import asyncpg

from hlas.doctor import models, semantic, streams, website
from hlas.doctor.finding import Finding, Status
from hlas.doctor.website import Service
from hlas.settings import ConfigurationError, Settings
from hlas.store import isolation, migrations
from hlas.store.db import Queries, connect, log_in
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.store.migrations import roles
from hlas.visitors import keys
from hlas.visitors.keys import FileKeys
from hlas.visitors.tokens import LEEWAY_SECONDS

queries = Queries.beside(__file__)

AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

OLDEST_MAJOR = 15
SECRET_DAYS = 180
SECRET_BITS = 100
CLOCK_SECONDS = 5.0
LITTLE_SPACE = 2 * 2**30
NO_SPACE = 256 * 2**20

_GUESSABLE = ("secret", "password", "changeme", "change-me", "example", "insecure", "12345678")
# Public addresses of unrelated hosts. To trust more than one of them is to trust everyone.
_UNRELATED = ("1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700:4700::1111")


class Usage(Protocol):
    """Disk usage in bytes."""

    @property
    def free(self) -> int: ...


async def examine(
    settings: Settings, url: str | None, *, service: str | None = None, page: str | None = None
) -> list[Finding]:
    """Run all checks, in the order in which to fix problems. Without `url` there is no database."""
    logins = Logins.from_settings(settings, url) if url else None
    found = await examine_database(logins) if logins else [_no_database(settings)]
    found += [
        check_secret(settings),
        check_limits(settings),
        check_disk(settings.data_dir),
        await check_redis(settings),
        await models.check(logins, settings),
        await semantic.check(logins, settings),
        await check_allowlist(logins, page),
    ]
    seen = Service(service, _signing_secret(settings)) if service else None
    found += [
        await check_address(settings, seen),
        await check_background(seen),
        await streams.check(logins, seen),
    ]
    return found + await website.examine(seen, page)


def _no_database(settings: Settings) -> Finding:
    return Finding(
        "database",
        "warn",
        f"there is no database in {settings.data_dir.resolve()}",
        "go to the directory Hlas runs in, or set DATA_DIR; a first `hlas serve` makes one",
    )


async def examine_database(logins: Logins) -> list[Finding]:
    try:
        connection = await connect(logins.owner_url)
    except AWAY as error:
        return [_unreachable(error)]
    try:
        return [
            check_server(connection),
            await check_migrations(connection),
            await check_roles(connection, logins),
            await check_isolation(connection, logins),
            await check_durability(connection),
            await check_clock(connection),
        ]
    except ConfigurationError as error:
        return [Finding("settings", "fail", str(error), "correct it in the environment or .env")]
    finally:
        await connection.close()


def _unreachable(error: Exception) -> Finding:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return Finding(
        "database",
        "fail",
        f"it cannot be reached: {reason}",
        "start it, and check the address, user and password in DATABASE_URL",
    )


def check_server(connection: asyncpg.Connection) -> Finding:
    version = connection.get_server_version()
    found = f"PostgreSQL {version.major}.{version.minor}"
    if version.major < OLDEST_MAJOR:
        return Finding("database", "fail", found, f"upgrade it to {OLDEST_MAJOR} or newer")
    return Finding("database", "ok", found)


async def check_migrations(connection: asyncpg.Connection) -> Finding:
    try:
        current = await connection.fetchval("select version_num from alembic_version")
    except asyncpg.UndefinedTableError:
        current = None
    head = migrations.head()
    if current == head:
        return Finding("migrations", "ok", f"the schema is at revision {head}")
    found = f"the schema is at revision {current}, this version of Hlas needs {head}"
    if current is not None and current > head:
        return Finding("migrations", "fail", found, "install the newer version of Hlas")
    return Finding("migrations", "fail", found, "run `hlas migrate`")


async def check_roles(connection: asyncpg.Connection, logins: Logins) -> Finding:
    if fault := await roles.find_fault(connection, logins):
        return Finding("role", "fail", *fault)
    serving = logins.role(APPLICATION)
    login = await connection.fetchrow(queries.login)
    if login["unsafe"]:
        return Finding(
            "role",
            "warn",
            f"{login['name']} in DATABASE_URL is a superuser or bypasses isolation; requests are "
            f"served as {serving}, but a leaked DATABASE_URL gives everything away",
            "make an ordinary role that owns the database, and use that",
        )
    return Finding("role", "ok", f"requests are served as {serving}, bound by isolation")


async def check_isolation(connection: asyncpg.Connection, logins: Logins) -> Finding:
    tables = await isolation.list_tables(connection, logins)
    if not tables:
        return Finding("isolation", "fail", "there are no tables", "run `hlas migrate`")
    faulty = [table for table in tables if table.fault]
    if faulty:
        fix = " ".join(
            f"alter table {table.name} enable row level security, force row level security;"
            if "row-level security" in table.fault
            else f"restore the policies of {table.name} as its migration made them;"
            for table in faulty
        )
        return Finding("isolation", "fail", ", ".join(map(str, faulty)), fix)
    return Finding("isolation", "ok", f"enforced by the database on all {len(tables)} tables")


async def check_durability(connection: asyncpg.Connection) -> Finding:
    row = await connection.fetchrow(queries.durability)
    off = [name for name, value in row.items() if value == "off"]
    if not off:
        return Finding("durability", "ok", "what is acknowledged is on disk")
    return Finding(
        "durability",
        "fail",
        f"{', '.join(off)} off: a crash loses messages that visitors saw as sent",
        " ".join(f"alter system set {name} = on;" for name in off)
        + " select pg_reload_conf(); and look for the same in alter role and alter database",
    )


async def check_clock(
    connection: asyncpg.Connection, clock: Callable[[], float] = time.time
) -> Finding:
    asked = time.monotonic()
    before = clock()
    theirs = await connection.fetchval(queries.clock)
    return compare_clocks("the database", theirs - before - (time.monotonic() - asked) / 2)


def compare_clocks(whose: str, ahead: float) -> Finding:
    if abs(ahead) <= CLOCK_SECONDS:
        return Finding("clock", "ok", f"within {CLOCK_SECONDS:.0f} s of {whose}")
    direction = "behind" if ahead > 0 else "ahead of"
    status: Status = "fail" if abs(ahead) > LEEWAY_SECONDS else "warn"
    return Finding(
        "clock",
        status,
        f"this machine is {abs(ahead):.0f} s {direction} {whose}",
        "let all machines follow a time server (chrony, systemd-timesyncd)",
    )


def check_secret(settings: Settings, now: Callable[[], float] = time.time) -> Finding:
    if not _has_secret(settings):
        return _missing_secret(settings)
    source = keys.from_settings(settings)
    if any(is_weak(secret) for secret in source.secrets()):
        return Finding(
            "secret",
            "fail",
            "a signing secret can be guessed: it repeats itself, or is made of words",
            "make one with `openssl rand -base64 48`",
        )
    if not isinstance(source, FileKeys):
        return Finding("secret", "ok", "strong; from the environment, so its age is not known")
    status = source.path.stat()
    if stat.S_IMODE(status.st_mode) & 0o077:
        return Finding(
            "secret", "fail", f"others may read {source.path}", f"chmod 600 {source.path}"
        )
    days = (now() - status.st_mtime) / 86400
    if days > SECRET_DAYS:
        return Finding("secret", "warn", f"it is {days:.0f} days old", "run `hlas secret rotate`")
    return Finding("secret", "ok", f"strong, and {max(0, days):.0f} days old")


def _missing_secret(settings: Settings) -> Finding:
    if settings.embedded:
        return Finding("secret", "skip", "there is no secret yet: `hlas serve` makes one")
    return Finding(
        "secret",
        "fail",
        "there is no secret, and with DATABASE_URL one is needed",
        "set WIDGET_SESSION_JWT_SECRET; make one with `openssl rand -base64 48`",
    )


def _has_secret(settings: Settings) -> bool:
    """Whether there is a secret. Looks for the file only, because reading it would create it."""
    file = settings.data_dir / "widget-secrets.json"
    return bool(settings.signing_secrets) or (settings.embedded and file.exists())


def _signing_secret(settings: Settings) -> str:
    return keys.from_settings(settings).secrets()[0] if _has_secret(settings) else ""


def is_weak(secret: str) -> bool:
    """A heuristic: too little variety, repetition, or words that people use in examples."""
    length = len(secret)
    shares = [count / length for count in Counter(secret).values()]
    bits = -sum(share * math.log2(share) for share in shares) * length
    repeats = len(zlib.compress(secret.encode(), 9)) < 0.8 * length
    return bits < SECRET_BITS or repeats or any(word in secret.lower() for word in _GUESSABLE)


def check_limits(settings: Settings) -> Finding:
    if not settings.rate_limit_enforce:
        return Finding(
            "limits", "warn", "limits are counted but not enforced", "set RATE_LIMIT_ENFORCE=true"
        )
    off = [
        name.upper() for name, value in settings if name.startswith("rate_limit_") and value is None
    ]
    if off:
        fix = f"set {', '.join(off)}, unless that is what you want"
        return Finding("limits", "warn", f"off: {', '.join(off)}", fix)
    return Finding("limits", "ok", "all limits are enforced")


def check_disk(path: Path, usage: Callable[[Path], Usage] = shutil.disk_usage) -> Finding:
    # DATA_DIR may not exist yet; then the nearest parent that exists is on the same disk.
    place = next((one for one in (path, *path.resolve().parents) if one.exists()), path)
    free = usage(place).free
    found = f"{free / 2**30:.1f} GiB free for {path}"
    if free >= LITTLE_SPACE:
        return Finding("disk", "ok", found)
    fix = "free some space, or let tenants keep less (`retention_days`), then `hlas cleanup`"
    return Finding("disk", "fail" if free < NO_SPACE else "warn", found, fix)


async def check_redis(settings: Settings) -> Finding:
    if not settings.redis_url:
        return Finding("redis", "skip", "REDIS_URL is empty: each process keeps its own limits")
    from redis.asyncio import Redis  # noqa: PLC0415  # loaded only when Redis is used
    from redis.exceptions import RedisError  # noqa: PLC0415  # the same

    client: Redis = Redis.from_url(settings.redis_url, socket_timeout=3, socket_connect_timeout=3)
    try:
        before = time.time()
        seconds, micros = await client.time()
        ahead = seconds + micros / 1e6 - (before + time.time()) / 2
        policy = (await client.info("memory")).get("maxmemory_policy", "noeviction")
    except (RedisError, OSError, TimeoutError) as error:
        return Finding(
            "redis",
            "fail",
            f"it does not answer ({type(error).__name__}): each process counts limits on its own",
            "start it, and check REDIS_URL",
        )
    finally:
        await client.aclose()
    if abs(ahead) > CLOCK_SECONDS:
        clock = compare_clocks("Redis", ahead)
        return Finding("redis", "warn", clock.found, clock.fix)
    if policy not in {"noeviction", "volatile-ttl"}:
        fix = "give it enough memory and set maxmemory-policy noeviction"
        return Finding("redis", "warn", f"it may evict limits ({policy})", fix)
    return Finding("redis", "ok", "it answers, and shares limits between all processes")


async def check_allowlist(logins: Logins | None, page: str | None) -> Finding:
    if page is None or logins is None:
        missing = "no page was given with --page" if page is None else "there is no database yet"
        return Finding("allowlist", "skip", missing)
    origin = website.origin_of(page)
    if origin is None:
        return Finding(
            "allowlist",
            "fail",
            f"{page[: website.SHOWN]} is not an http or https address",
            "https://…",
        )
    try:
        connection = await log_in(logins, OPERATOR)
        try:
            row = await connection.fetchrow(
                queries.tenant_of_origin, origin.scheme, origin.hosts, origin.port
            )
        finally:
            await connection.close()
    except (*AWAY, ConfigurationError):
        return Finding("allowlist", "skip", "the database cannot be queried")
    if row is None:
        fix = f"hlas domain add SLUG {origin}"
        return Finding("allowlist", "fail", f"no tenant allows {origin}", fix)
    if not row["is_active"]:
        fix = f"hlas tenant enable {row['slug']}"
        return Finding("allowlist", "fail", f"the tenant {row['slug']} is disabled", fix)
    return Finding("allowlist", "ok", f"{origin} belongs to {row['slug']}")


async def check_address(settings: Settings, service: Service | None) -> Finding:
    """Check which address the service would limit a request from here by."""
    trusted = settings.trusted_proxies
    if sum(trusted.trust(address) for address in _UNRELATED) > 1:
        return Finding(
            "address",
            "fail",
            "TRUSTED_PROXIES trusts everybody, so visitors choose the address they are limited by",
            "name the networks of your proxies only",
        )
    if service is None:
        return Finding("address", "skip", "the service's address was not given with --url")
    return await website.check_address(service)


async def check_background(service: Service | None) -> Finding:
    """Check that the background tasks of the worker that answers are running."""
    if service is None:
        return Finding("background", "skip", "the service's address was not given with --url")
    return await website.check_background(service)
