"""Language models: list, add, change, test and remove. For operators."""

from typing import Annotated

from fastapi import Path, Response
from pydantic import ValidationError

from hlas.agent.providers import models
from hlas.agent.providers.models import NAME, ListedModel, ModelChanges, NewModel
from hlas.agent.providers.ping import Ping, ping
from hlas.api.console.access import (
    CONSOLE,
    Form,
    Operator,
    Sent,
    Visit,
    attempt,
    explain,
    go,
    router,
)
from hlas.services import Services
from hlas.store.vault import Vault

Problems = dict[str, str]
PathModel = Annotated[str, Path(pattern=NAME)]


def _vault(visit: Visit) -> Vault:
    services: Services = visit.request.app.state.services
    return services.vault


@router.get("/models")
async def list_models(visit: Operator) -> Response:
    return await _list_page(visit)


async def _list_page(
    visit: Visit, status: int = 200, *, form: Form | None = None, problems: Problems | None = None
) -> Response:
    return visit.page(
        "models.html",
        status,
        models=await models.list_models(visit.database),
        form=form or {},
        problems=problems or {},
    )


def _read_prices(form: Form, *, needed: bool) -> dict[str, object]:
    """Free, both prices, or none of these if they are not needed."""
    if "is_free" in form:
        return {"is_free": True}
    texts = {name: form.get(name, "").strip() for name in ("input_price", "output_price")}
    return {name: text for name, text in texts.items() if text or needed}


@router.post("/models")
async def add_model(visit: Operator, form: Sent) -> Response:
    given: dict[str, object] = {
        name: form.get(name, "").strip() for name in ("name", "base_url", "model")
    }
    key = form.get("key", "").strip()
    given |= _read_prices(form, needed=False) | ({"key": key} if key else {})
    try:
        new = NewModel.model_validate(given)
    except ValidationError as error:
        return await _list_page(visit, 422, form=form, problems=explain(error))
    problem = await attempt(models.add(visit.database, _vault(visit), new, visit.change))
    if problem:
        return await _list_page(visit, 409, form=form, problems={"": problem})
    return go(f"{CONSOLE}/models/{new.name}", "added")


@router.get("/models/{model}")
async def read_model(visit: Operator, model: PathModel) -> Response:
    return _model_page(visit, await models.find_listed(visit.database, model))


def _fill_form(model: ListedModel) -> Form:
    filled = {"base_url": model.base_url, "model": model.model}
    if model.is_free:
        return {**filled, "is_free": "on"}
    return {**filled, "input_price": model.input_price, "output_price": model.output_price}


def _model_page(
    visit: Visit,
    model: ListedModel,
    status: int = 200,
    *,
    form: Form | None = None,
    problems: Problems | None = None,
    tested: Ping | None = None,
) -> Response:
    return visit.page(
        "model.html",
        status,
        model=model,
        revision=model.revision,
        form=form or _fill_form(model),
        problems=problems or {},
        tested=tested,
    )


@router.post("/models/{model}")
async def change_model(visit: Operator, model: PathModel, form: Sent) -> Response:
    stored = await models.find_listed(visit.database, model)
    key = form.get("key", "").strip()
    given: dict[str, object] = {name: form.get(name, "").strip() for name in ("base_url", "model")}
    prices = _read_prices(form, needed=True)
    # The form repeats the stored price, which says nothing about another model.
    if "keep_price" in form or prices != _read_prices(_fill_form(stored), needed=True):
        given |= prices
    if key or "no_key" in form:
        given["key"] = key or None
    try:
        changes = ModelChanges.model_validate(given)
    except ValidationError as error:
        return _model_page(visit, stored, 422, form=form, problems=explain(error))
    expected = frozenset({form.get("revision", "")})
    changing = models.update(visit.database, _vault(visit), model, changes, expected, visit.change)
    problem = await attempt(changing)
    if problem:
        return _model_page(visit, stored, 409, form=form, problems={"": problem})
    return go(f"{CONSOLE}/models/{model}", "saved")


@router.post("/models/{model}/test")
async def ping_model(visit: Operator, model: PathModel) -> Response:
    """Send one small request; the provider may charge for it."""
    listed = await models.find_listed(visit.database, model)
    tested = await ping(await models.find(visit.database, _vault(visit), model))
    return _model_page(visit, listed, tested=tested)


@router.post("/models/{model}/remove")
async def remove_model(visit: Operator, model: PathModel) -> Response:
    await models.remove(visit.database, model, visit.change)
    return go(f"{CONSOLE}/models", "removed")
