"""How a tenant's widget looks, with a preview before it is saved."""

from collections.abc import Mapping

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
from hlas.tenants.looks import Language, Looks, LookTexts
from hlas.tenants.tenants import Tenant

# The form's fields in order: name, title, kind, longest value, hint. Each language has them, too.
TEXTS = (
    ("title", "Title", "line", 60, "Chat with us"),
    ("subtitle", "Subtitle", "line", 80, "We answer at once"),
    ("greeting", "Greeting", "text", 500, "Hello! How can we help you?"),
    ("placeholder", "Placeholder of the field", "line", 80, "Write a message…"),
    ("launcher", "Launcher: chat, question, or a word", "line", 24, "chat"),
    ("notice", "Notice below answers of a language model", "line", 120, "AI can make mistakes."),
    ("suggestions", "Suggested questions", "text", None, "One per line, at most six"),
)
LANGUAGE_NAMES: dict[Language, str] = {"cs": "Czech", "en": "English"}
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
    shown = form or _fill_form(tenant.ui_config)
    return visit.page(
        "looks.html",
        status,
        tenant=tenant,
        revision=tenant.revision,
        texts=TEXTS,
        languages=LANGUAGE_NAMES,
        choices=CHOICES,
        form=shown,
        opened={name.rpartition(".")[0] + "." for name, text in shown.items() if text},
        problems=problems or {},
        policy={"frame_src": "'self'"},
    )


def _fill_form(looks: Mapping[str, object], prefix: str = "") -> Form:
    """The values as texts; those of a language have names such as `texts.cs.title`."""
    form: Form = {}
    for name, value in looks.items():
        if isinstance(value, dict):
            form |= _fill_form(value, f"{prefix}{name}.")
        else:
            shown = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
            form[prefix + name] = shown
    return form


@router.post("/tenants/{slug}/looks")
async def change_looks(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    given = _read_fields(form, Looks)
    if "z_index" in given:
        given["z_index"] = parse_number(str(given["z_index"]))
    given["texts"] = {
        language: _read_fields(form, LookTexts, f"texts.{language}.") for language in LANGUAGE_NAMES
    }
    try:
        looks = Looks.model_validate(given)
    except ValidationError as error:
        return _looks_page(visit, tenant, 422, form, explain(error))
    changes = {"ui_config": looks.store()}
    return await save(visit, tenant, changes, form, f"{CONSOLE}/tenants/{tenant.slug}/looks")


def _read_fields(form: Form, looks: type[LookTexts], prefix: str = "") -> dict[str, object]:
    """The fields that are not empty."""
    texts = {name: form.get(prefix + name, "").strip() for name in looks.model_fields}
    given: dict[str, object] = {name: text for name, text in texts.items() if text}
    if "suggestions" in given:
        lines = [line.strip() for line in texts["suggestions"].split("\n")]
        given["suggestions"] = [line for line in lines if line]
    return given
