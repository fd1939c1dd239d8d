"""The error format in OpenAPI, so that no status is undocumented."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field


class Problem(BaseModel):
    detail: str = Field(description="a stable code")
    message: str = Field(description="one sentence for people")
    request_id: str
    errors: list[dict[str, object]] | None = Field(
        None, description="places and kinds of what is invalid; with invalid_request only"
    )


_MEANING = {
    400: "The request is not what it should be",
    401: "The request is not authenticated",
    402: "The budget for language models is used up",
    403: "The request is not allowed",
    404: "There is nothing here",
    408: "The body did not arrive in time",
    409: "The request conflicts with another one",
    412: "It has changed since it was read",
    413: "The body is too large",
    415: "The body is not plain UTF-8 JSON",
    422: "The request is not valid",
    428: "If-Match is missing",
    429: "Too many requests; see Retry-After",
    502: "The language model failed",
    503: "Not available right now; see Retry-After",
    504: "The language model was too slow",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem, "description": _MEANING[status]} for status in statuses}


def takes(model: type[BaseModel]) -> dict[str, object]:
    """The request body of a route that reads it itself, after authentication."""
    return {"requestBody": describe_body(model)}


def describe_body(model: type[BaseModel], *, required: bool = True) -> dict[str, object]:
    schema = model.model_json_schema()
    inlined = _inline(schema, schema.pop("$defs", {}))
    return {"content": {"application/json": {"schema": inlined}}, "required": required}


def _inline(schema: object, definitions: Mapping[str, object]) -> object:
    """Inline the references, which would point into the model's own document."""
    if isinstance(schema, list):
        return [_inline(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inline(item, definitions) for name, item in schema.items()}
