"""What a tenant's widget looks like, tried on in a preview before it is saved."""

from typing import Any

from fastapi import Response
from pydantic import ValidationError

from hlas.api.console.access import (
    CONSOLE,
    Form,
    Sent,
    Signed,
    Tenant,
    Visit,
    complaints,
    number,
    router,
)
from hlas.api.console.tenants import save
from hlas.tenants import revisions
from hlas.tenants.looks import Looks

# The form's fields in order: name, title, kind, longest value, hint.
TEXTS = (
    ("title", "Title", "line", 60, "Chat with us"),
    ("subtitle", "Subtitle", "line", 80, "We answer at once"),
    ("greeting", "Greeting", "text", 500, "Hello! How can we help you?"),
    ("placeholder", "Placeholder of the field", "line", 80, "Write a message…"),
    ("launcher", "Launcher: chat, question, or a word", "line", 24, "chat"),
    ("privacy_url", "Address of your privacy policy", "line", 500, "https://example.com/privacy"),
)
CHOICES = (
    ("position", "Corner", (("", "Default"), ("right", "Right"), ("left", "Left"))),
    (
        "theme",
        "Theme",
        (("", "Default"), ("auto", "As the visitor's"), ("light", "Light"), ("dark", "Dark")),
    ),
)


@router.get("/tenants/{slug}/looks")
async def looks_page(visit: Signed, tenant: Tenant) -> Response:
    return _page(visit, tenant)


def _page(
    visit: Visit, tenant: dict[str, Any], status: int = 200, form: Form | None = None, **values: Any
) -> Response:
    looks = tenant["ui_config"]
    shown = {name: str(value) for name, value in looks.items() if name != "suggestions"}
    shown["suggestions"] = "\n".join(map(str, looks.get("suggestions") or ()))
    return visit.page(
        "looks.html",
        status,
        tenant=tenant,
        revision=revisions.tag(tenant),
        texts=TEXTS,
        choices=CHOICES,
        form=form or shown,
        problems=values.get("problems", {}),
        policy={"frame_src": "'self'"},
    )


@router.post("/tenants/{slug}/looks")
async def change_looks(visit: Signed, tenant: Tenant, form: Sent) -> Response:
    given: dict[str, Any] = {
        name: form[name].strip()
        for name in Looks.model_fields
        if name != "suggestions" and form.get(name, "").strip()
    }
    suggestions = [line.strip() for line in form.get("suggestions", "").split("\n")]
    if any(suggestions):
        given["suggestions"] = [line for line in suggestions if line]
    if "z_index" in given:
        given["z_index"] = number(given["z_index"])
    try:
        looks = Looks.model_validate(given)
    except ValidationError as error:
        return _page(visit, tenant, 422, form, problems=complaints(error))
    changes = {"ui_config": looks.model_dump(exclude_none=True)}
    return await save(visit, tenant, changes, form, f"{CONSOLE}/tenants/{tenant['slug']}/looks")
