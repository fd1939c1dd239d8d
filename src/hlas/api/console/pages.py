"""Renders templates, with a content policy that allows only our own scripts and styles."""

from datetime import UTC, datetime
from functools import cache

import orjson
from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hlas.agent import agent_settings
from hlas.agent.money import dollars
from hlas.agent.providers import models
from hlas.http.headers import page_headers
from hlas.web.assets import HERE

TEMPLATES = HERE / "console" / "templates"

# Messages after a redirect; the address contains the key, never the text.
DONE = {
    "saved": "Saved.",
    "added": "Added.",
    "removed": "Removed.",
    "answered": "The answer is saved.",
    "worded": "The wording is added.",
    "dismissed": "Dismissed.",
    "closed": "The conversation is closed.",
    "taken-over": "You have taken the conversation over.",
    "handed-back": "The agent answers again.",
    "sent": "Sent.",
    "signed-out": "Every visitor of this tenant is signed out.",
    "bye": "You are signed out.",
}
MESSAGES = {
    "invalid_domain": "Write a domain such as example.com, *.example.com or localhost:3000.",
    "invalid_limit": "Write a limit such as 30/min, 5/s, 1000/h or off.",
    "invalid_public_key": "Write a public key in PEM: P-256, or RSA of 2048 to 4096 bits.",
    "invalid_dollars": "Write US dollars such as 5 or 0.25, with at most 9 decimals.",
    "invalid_character": "This contains a character that is not allowed here.",
    "invalid_url": "Write an address such as https://example.com/page.",
    "missing": "This field is required.",
    "string_too_short": "This field is required.",
    "string_too_long": "Write at most {max_length} characters.",
    "too_short": "Write at least {min_length}.",
    "too_long": "Write at most {max_length} of them.",
    "int_type": "Write a whole number.",
    "greater_than_equal": "Write {ge} or more.",
    "less_than_equal": "Write {le} or less.",
    **models.RULES,
    **agent_settings.RULES,
}
# By field, for errors whose message depends on the field.
FORMS = {
    "slug": "A slug is 1 to 63 characters of a-z, 0-9 and -, no - at its ends.",
    "color": "Write a colour such as #1f5eff.",
    "color_text": "Write a colour such as #ffffff.",
    "language": "Write a language such as en or en-GB.",
    "privacy_url": "Write an address such as https://example.com/privacy.",
}


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "moment": moment,
        "thousands": thousands,
        "pretty": pretty,
        "dollars": dollars.describe,
        "likelihood": describe_likelihood,
    }
    return made


def page(
    template: str, status: int = 200, *, policy: dict[str, str] | None = None, **values: object
) -> Response:
    headers = make_headers(policy)
    return Response(render(template, **values), status, headers, media_type="text/html")


def make_headers(policy: dict[str, str] | None = None) -> dict[str, str]:
    return {"Cache-Control": "no-store", **page_headers(**(policy or {}))}


def render(template: str, **values: object) -> str:
    """A page, or a part of one."""
    given = {"me": None, "done": None, **values}
    return environment().get_template(template).render(given)


def moment(value: datetime | None, form: str = "full") -> Markup:
    """A time in UTC; the script converts it to the reader's time zone."""
    if value is None:
        return Markup("never")
    utc = value.astimezone(UTC)
    return Markup('<time datetime="{}" data-form="{}">{}</time>').format(
        utc.isoformat(timespec="seconds"),
        form,
        utc.strftime("%Y-%m-%d" if form == "day" else "%Y-%m-%d %H:%M"),
    )


# Least probabilities, and the words for them.
LIKELIHOODS = ((0.9, "Almost certain"), (0.7, "Very likely"), (0.45, "Likely"), (0.2, "Possible"))


def describe_likelihood(confidence: float) -> str:
    """The probability that an entry answers a question, in words."""
    return next((words for least, words in LIKELIHOODS if confidence >= least), "Unlikely")


def thousands(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def pretty(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
