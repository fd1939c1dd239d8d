"""Signing secrets from the command line."""

import typer

from hlas.cli.database import AsJson, prepare, require_database, show
from hlas.settings import ConfigurationError
from hlas.visitors import keys
from hlas.visitors.keys import FileKeys
from hlas.visitors.tokens import key_id

secret = typer.Typer(help="The secrets that sign visitors' tokens.", no_args_is_help=True)


@secret.command()
def rotate(*, as_json: AsJson = False) -> None:
    """Sign with a new secret from now on.

    Tokens signed with the last ones stay valid.
    """
    settings = prepare()
    require_database(settings)
    source = keys.from_settings(settings)
    if not isinstance(source, FileKeys):
        raise ConfigurationError(
            "WIDGET_SESSION_JWT_SECRETS: secrets come from the environment; put a new one in "
            "front of the list and restart"
        )
    source.rotate()
    identifiers = [key_id(value) for value in source.secrets()]
    show(
        {"signs": identifiers[0], "verify": identifiers},
        as_json=as_json,
        text=f"Key {identifiers[0]} signs within seconds; {len(identifiers)} keys verify.",
    )
