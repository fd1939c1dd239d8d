"""Language models that tenants' agents may use."""

from typing import Annotated

from fastapi import Depends, Path, Request, Response
from pydantic import BaseModel

from hlas.agent.providers import models
from hlas.agent.providers.models import NAME, ListedModel, ModelChanges, NewModel
from hlas.api.admin.access import IfMatch, Operator, answer, read_body, router
from hlas.api.documentation import problems, takes
from hlas.services import Services

PathModel = Annotated[str, Path(pattern=NAME, description="the model's name")]


class Models(BaseModel):
    models: list[ListedModel]


@router.get("/models", response_model=Models, summary="List models (operators)")
async def list_models(access: Operator) -> Response:
    return answer({"models": await models.list_models(access.database)})


@router.post(
    "/models",
    status_code=201,
    response_model=ListedModel,
    summary="Add a model (operators)",
    responses=problems(408, 409, 413, 415, 422),
    openapi_extra=takes(NewModel),
)
async def add_model(
    access: Operator, request: Request, new: Annotated[NewModel, Depends(read_body(NewModel))]
) -> Response:
    """Without prices the provider's list prices are used; where there are none, it is refused."""
    services: Services = request.app.state.services
    added = await models.add(access.database, services.vault, new, access.change)
    headers = {"Location": f"/admin/models/{added.name}"}
    return answer(added, 201, revision=added.revision, headers=headers)


@router.get(
    "/models/{model}",
    response_model=ListedModel,
    summary="Read a model (operators)",
    responses=problems(404, 422),
)
async def read_model(access: Operator, model: PathModel) -> Response:
    found = await models.find_listed(access.database, model)
    return answer(found, revision=found.revision)


@router.patch(
    "/models/{model}",
    response_model=ListedModel,
    summary="Change a model (operators)",
    responses=problems(404, 408, 409, 412, 413, 415, 422, 428),
    openapi_extra=takes(ModelChanges),
)
async def update_model(
    access: Operator,
    request: Request,
    model: PathModel,
    expected: IfMatch,
    changes: Annotated[ModelChanges, Depends(read_body(ModelChanges))],
) -> Response:
    """Fields left out keep their values; a new address needs the key again.

    Another address or model needs a price, too, unless it has a list price.
    """
    services: Services = request.app.state.services
    changed = await models.update(
        access.database, services.vault, model, changes, expected, access.change
    )
    return answer(changed, revision=changed.revision)


@router.delete(
    "/models/{model}",
    status_code=204,
    summary="Remove a model that no tenant uses (operators)",
    responses=problems(404, 409, 412, 413, 415, 422, 428),
)
async def remove_model(access: Operator, model: PathModel, expected: IfMatch) -> Response:
    await models.remove(access.database, model, access.change, expected)
    return Response(status_code=204)
