"""How a tenant's widget looks, with a preview before it is saved."""

from fastapi import Response
from pydantic import ValidationError

from hlas.api.console.access import (
    CONSOLE,
    Form,
    PathTenant,
    Sent,
    Signed,
    Visit,
    explain,
    parse_number,
    router,
)
from hlas.api.console.tenants import save
from hlas.tenants.looks import Looks
from hlas.tenants.tenants import Tenant

# The form's fields in order: name, title, kind, longest value, hint.
TEXTS = (
    ("title", "Title", "line", 60, "Chat with us"),
    ("subtitle", "Subtitle", "line", 80, "We answer at once"),
    ("greeting", "Greeting", "text", 500, "Hello! How can we help you?"),
    ("placeholder", "Placeholder of the field", "line", 80, "Write a message…"),
    ("launcher", "Launcher: chat, question, or a word", "line", 24, "chat"),
    ("notice", "Notice below answers of a language model", "line", 120, "AI can make mistakes."),
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
async def read_looks(visit: Signed, tenant: PathTenant) -> Response:
    return _looks_page(visit, tenant)


def _looks_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    shown = {name: str(value) for name, value in tenant.ui_config.items() if name != "suggestions"}
    suggestions = tenant.ui_config.get("suggestions")
    shown["suggestions"] = "\n".join(map(str, suggestions)) if isinstance(suggestions, list) else ""
    return visit.page(
        "looks.html",
        status,
        tenant=tenant,
        revision=tenant.revision,
        texts=TEXTS,
        choices=CHOICES,
        form=form or shown,
        problems=problems or {},
        policy={"frame_src": "'self'"},
    )


@router.post("/tenants/{slug}/looks")
async def change_looks(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    texts = {name: form.get(name, "").strip() for name in Looks.model_fields}
    given: dict[str, object] = {name: text for name, text in texts.items() if text}
    lines = [line.strip() for line in texts["suggestions"].split("\n")]
    if texts["suggestions"]:
        given["suggestions"] = [line for line in lines if line]
    if texts["z_index"]:
        given["z_index"] = parse_number(texts["z_index"])
    try:
        looks = Looks.model_validate(given)
    except ValidationError as error:
        return _looks_page(visit, tenant, 422, form, explain(error))
    changes = {"ui_config": looks.model_dump(exclude_none=True)}
    return await save(visit, tenant, changes, form, f"{CONSOLE}/tenants/{tenant.slug}/looks")
