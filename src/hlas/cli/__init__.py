"""The `hlas` command."""

import sys

import asyncpg
import typer

from hlas.cli import (
    admin,
    database,
    knowledge,
    operate,
    secrets,
    serve,
    tenants,
    visitor_keys,
)
from hlas.errors import HlasError, TenantError
from hlas.postgres import EmbeddedPostgresError
from hlas.settings import ConfigurationError

app = typer.Typer(
    name="hlas",
    help="Hlas: chat and voice for websites. Start with `hlas serve`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve.serve)
app.command()(database.migrate)
app.command()(operate.cleanup)
app.command()(operate.export)
app.command()(operate.erase)
app.command()(operate.doctor)
app.command()(operate.backup)
app.command()(operate.restore)
app.command()(admin.audit)
app.add_typer(tenants.tenant, name="tenant")
app.add_typer(tenants.domain, name="domain")
app.add_typer(visitor_keys.visitor_key, name="visitor-key")
app.add_typer(admin.admin_key, name="admin-key")
app.add_typer(knowledge.knowledge, name="knowledge")
app.add_typer(secrets.secret, name="secret")


def main() -> None:
    """Run a command; whatever goes wrong is one clear line and a non-zero exit."""
    try:
        app()
    except (ConfigurationError, TenantError, EmbeddedPostgresError) as error:
        sys.exit(f"hlas: {error}")
    except HlasError as error:
        sys.exit(f"hlas: {error.message}")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        sys.exit(f"hlas: the database cannot be used: {error}")
