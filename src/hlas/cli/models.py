"""Language models from the command line."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hlas import settings as configuration
from hlas.agent.money import dollars
from hlas.agent.providers import models
from hlas.agent.providers.models import ListedModel, ModelChanges, NewModel
from hlas.cli.database import AsJson, show, validate, with_operators
from hlas.errors import TenantError
from hlas.store.db import Database
from hlas.store.vault import Vault

model = typer.Typer(
    help="Language models for agents: add, list, set, test, remove.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The model's name, as `list` shows it.")]
KeyFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A file with the provider's key; - reads standard input. It is stored encrypted and "
        "never shown again.",
    ),
]
Price = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="IN OUT", help="US dollars for a million tokens of input and of output: 2.50 10"
    ),
]
Free = Annotated[
    bool, typer.Option("--free", help="It costs nothing, for example on your own hardware.")
]


def _vault() -> Vault:
    """Open it with the database, so that none is made in a wrong directory."""
    return Vault.from_settings(configuration.load())


@model.command("add")
def add_model(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name to choose it by: a-z, 0-9, . _ and -.")
    ],
    base_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="An OpenAI-compatible address: https://api.openai.com/v1, "
            "http://127.0.0.1:11434/v1",
        ),
    ],
    model: Annotated[str, typer.Option(metavar="ID", help="The provider's name of the model.")],
    key_file: KeyFile = None,
    price: Price = None,
    *,
    free: Free = False,
    as_json: AsJson = False,
) -> None:
    """Add a model. Without --price and --free its list price is looked up."""
    given = {"name": name, "base_url": base_url, "model": model, "is_free": free}
    new = validate(NewModel, {**given, **_read_price(price), **_read_key(key_file)})
    added = with_operators(lambda operators: models.add(operators, _vault(), new))
    text = f"Added {name}: {_show_price(added)}.\n  test      hlas model test {name}\n"
    show(
        added, as_json=as_json, text=text + f"  use       hlas agent set --tenant S --model {name}"
    )


@model.command("list")
def list_models(*, as_json: AsJson = False) -> None:
    """List all models, without their keys."""
    found = with_operators(models.list_models)
    lines = [f"{'NAME':<20} {'MODEL':<28} {'KEY':<4} {'PRICE':<28} {'TENANTS':<20} ADDRESS"]
    lines += [
        f"{one.name:<20} {one.model:<28} {'yes' if one.has_key else 'no':<4} "
        f"{_show_price(one):<28} {', '.join(one.tenants) or '-':<20} {one.base_url}"
        for one in found
    ]
    text = "\n".join(lines) if found else "No models yet: `hlas model add`."
    show(found, as_json=as_json, text=text)


@model.command("set")
def change_model(
    name: Name,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A new address; give the key again, too.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="ID", help="The provider's name of the model.")
    ] = None,
    key_file: KeyFile = None,
    price: Price = None,
    *,
    no_key: Annotated[bool, typer.Option("--no-key", help="Remove the stored key.")] = False,
    free: Free = False,
    as_json: AsJson = False,
) -> None:
    """Change a model: its key, price or address. What is not given stays as it is.

    With another address or model and neither --price nor --free, its list price is looked up.
    """
    if no_key and key_file is not None:
        raise TenantError("give --key-file or --no-key, not both")
    given: dict[str, object] = {"base_url": base_url, "model": model, "is_free": free or None}
    given = {field: value for field, value in given.items() if value is not None}
    given |= _read_price(price) | _read_key(key_file) | ({"key": None} if no_key else {})
    if not given:
        raise TenantError("nothing to change; see `hlas model set --help`")
    changes = validate(ModelChanges, given)
    changed = with_operators(lambda operators: models.update(operators, _vault(), name, changes))
    show(changed, as_json=as_json, text=f"Changed {name}: {_show_price(changed)}.")


@model.command("remove")
def remove_model(name: Name, *, as_json: AsJson = False) -> None:
    """Remove a model that no tenant uses."""
    with_operators(lambda operators: models.remove(operators, name))
    show({"name": name}, as_json=as_json, text=f"Removed {name}.")


@model.command("test")
def ping_model(name: Name, *, as_json: AsJson = False) -> None:
    """Send one small request to a model. The provider may charge for it."""
    from hlas.agent.providers.ping import Ping, ping  # noqa: PLC0415  # loads the HTTP client

    async def work(operators: Database) -> Ping:
        return await ping(await models.find(operators, _vault(), name))

    done = with_operators(work)
    if done.problem:
        raise TenantError(f"{name} does not work: {done.problem}")
    tokens = "the provider reports no tokens"
    if done.cost is not None:
        used = f"{done.input_tokens} tokens in, {done.output_tokens} out"
        tokens = f"{used}, {dollars.show(done.cost)} USD"
    times = f"first token after {done.first_token_ms} ms, all after {done.total_ms} ms"
    text = f"{name} works: {times}; {tokens}."
    show({"name": name, **asdict(done)}, as_json=as_json, text=text)


def _read_price(price: tuple[str, str] | None) -> dict[str, object]:
    return {} if price is None else {"input_price": price[0], "output_price": price[1]}


def _read_key(file: str | None) -> dict[str, object]:
    """The key is on one line; it is never an argument, which other users of the machine see."""
    if file is None:
        return {}
    try:
        text = sys.stdin.read(8192) if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise TenantError(f"{file} cannot be read: {reason}") from None
    return {"key": text.strip()}


def _show_price(one: ListedModel) -> str:
    if one.is_free:
        return "free"
    return f"{one.input_price} in, {one.output_price} out USD/M"
