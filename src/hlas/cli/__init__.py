"""The `hlas` command."""

import sys
from typing import Annotated

import asyncpg
import typer

# Typer brings a Click of its own, and gives these no public name.
from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError

from hlas import __version__
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


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # how Typer calls it
    if wanted:
        typer.echo(f"hlas {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del version


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
        sys.exit(app(standalone_mode=False))
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except ClickException as error:
        typer.echo(f"hlas: {_sentence(error)}", err=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit("hlas: nothing was done")
    except (ConfigurationError, TenantError, EmbeddedPostgresError) as error:
        sys.exit(f"hlas: {error}")
    except HlasError as error:
        sys.exit(f"hlas: {error.message}")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        sys.exit(f"hlas: the database cannot be used: {error}")


def _sentence(error: ClickException) -> str:
    """What is wrong with the words of a command, in one line, and where its words are listed."""
    told = " ".join(error.format_message().split()).rstrip(".")
    told = told[:1].lower() + told[1:]
    if isinstance(error, UsageError) and error.ctx is not None:
        told += f"; see `{error.ctx.command_path} --help`"
    return told
