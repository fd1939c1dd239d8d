"""The `hlas` command. Each command's module is loaded when the command is used."""

import sys
from importlib import import_module
from typing import Annotated

import typer

# Typer brings a Click of its own, and gives these no public name.
from typer._click import Command, Context
from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError
from typer.core import TyperGroup

from hlas import __version__

# The module of each command, and its name there where it differs.
COMMANDS = {
    "serve": "serve",
    "migrate": "database",
    "cleanup": "operate",
    "export": "operate",
    "erase": "operate",
    "doctor": "operate",
    "backup": "operate",
    "restore": "operate",
    "audit": "admin",
    "tenant": "tenants",
    "domain": "tenants",
    "visitor-key": "visitor_keys",
    "admin-key": "admin",
    "knowledge": "knowledge",
    "evaluate": "evaluate",
    "product": "products",
    "mcp": "mcp",
    "model": "models",
    "agent": "agent",
    "secret": "secrets",
    "spend": "spend",
}


class _Commands(TyperGroup):
    """Imports a command's module only for that command: loading all of them takes a second."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002  # as Click calls it
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:  # noqa: ARG002  # as above
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"hlas.cli.{COMMANDS[cmd_name]}")
        found = getattr(module, cmd_name.replace("-", "_"))
        parent = typer.Typer(add_completion=False, rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=cmd_name)
        else:
            parent.command(cmd_name)(found)
        return typer.main.get_group(parent).commands[cmd_name]


app = typer.Typer(
    name="hlas",
    cls=_Commands,
    help="Hlas: chat for websites. Start with `hlas serve`.",
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


def main() -> None:
    """Run a command. An error is one line and a non-zero exit status."""
    try:
        sys.exit(app(prog_name="hlas", standalone_mode=False))
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except ClickException as error:
        typer.echo(f"hlas: {_describe(error)}", err=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit("hlas: aborted")
    except Exception as error:
        reason = _explain(error)
        if reason is None:
            raise
        sys.exit(f"hlas: {reason}")


def _explain(error: Exception) -> str | None:
    """Describe an expected error in one line; None for a bug, which needs its traceback."""
    # Already imported if the command could raise one of these.
    import asyncpg  # noqa: PLC0415

    from hlas.errors import HlasError, TenantError  # noqa: PLC0415
    from hlas.settings import ConfigurationError  # noqa: PLC0415
    from hlas.store.embedded import EmbeddedPostgresError  # noqa: PLC0415

    match error:
        case ConfigurationError() | TenantError() | EmbeddedPostgresError():
            return str(error)
        case HlasError():
            return error.message
        case OSError() | asyncpg.PostgresError() | asyncpg.InterfaceError():
            return f"the database cannot be used: {error}"
        case _:
            return None


def _describe(error: ClickException) -> str:
    """Describe a usage error in one line, with the command that shows the help."""
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    if isinstance(error, UsageError) and error.ctx is not None:
        text += f"; see `{error.ctx.command_path} --help`"
    return text
