"""Questions with answers that a page declares for search engines (schema.org)."""

import html
import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from hlas.knowledge.imports.blocks import Pair
from hlas.knowledge.imports.elements import Element, clean, parse_html
from hlas.knowledge.imports.markdown import render
from hlas.knowledge.imports.questions import strip_number

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

INVALID = "the page's JSON-LD is not valid JSON, so it was not used"

_WRAPPING = re.compile(r"^\s*(?:<!--|//\s*<!\[CDATA\[|<!\[CDATA\[)|(?://\s*)?(?:-->|\]\]>)\s*$")


def find_declared(root: Element, base: str) -> tuple[list[Pair], list[str]]:
    """The pairs in JSON-LD, then those in microdata or RDFa, and warnings."""
    pairs: list[Pair] = []
    warnings: list[str] = []
    for script in [one for one in root.walk() if one.tag == "script"]:
        text = "".join(one for one in script.children if isinstance(one, str))
        try:
            data: Json = json.loads(_WRAPPING.sub("", text), strict=False)
        except (ValueError, RecursionError):
            warnings = [INVALID]
            continue
        pairs += [pair for one in _find_questions(data) if (pair := _make_pair(one, base))]
    return pairs + list(_find_marked(root, base)), warnings


def _find_questions(data: Json) -> Iterator[dict[str, Json]]:
    waiting: list[Json] = [data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting.extend(reversed(one))
        elif isinstance(one, dict):
            if "Question" in _as_list(one.get("@type")):
                yield one
            else:
                waiting.extend(reversed(one.values()))


def _make_pair(question: dict[str, Json], base: str) -> Pair | None:
    names = (question.get(key) for key in ("name", "text", "headline"))
    name = next((one for one in names if isinstance(one, str) and one.strip()), "")
    replies = _as_list(question.get("acceptedAnswer")) or _as_list(question.get("suggestedAnswer"))
    texts = (one.get("text") if isinstance(one, dict) else one for one in replies)
    answer = next((one for one in texts if isinstance(one, str) and one.strip()), "")
    asked = strip_number(clean(read_fragment(name, base).replace("\n", " ")))
    written = read_fragment(answer, base)
    return Pair(asked, written) if asked and written else None


def read_fragment(text: str, base: str) -> str:
    """Text that may be HTML, escaped or not, as Markdown."""
    if re.search(r"&lt;/?[a-zA-Z]", text):
        text = html.unescape(text)
    if not re.search(r"</?[a-zA-Z]|&[#\w]+;", text):
        return "\n".join(filter(None, (clean(line) for line in text.split("\n"))))
    body = next((one for one in parse_html(text).elements if one.tag == "body"), None)
    return render(body.children, base) if body is not None else ""


def _find_marked(root: Element, base: str) -> Iterator[Pair]:
    """Microdata (itemtype, itemprop) and RDFa (typeof, property)."""
    for one in root.walk():
        kind = one.get("itemtype") or one.get("typeof")
        if not kind.rstrip("/").endswith("Question"):
            continue
        question = _find_property(one, "name")
        answer = _find_property(one, "acceptedAnswer") or _find_property(one, "suggestedAnswer")
        if question is None or answer is None:
            continue
        text = _find_property(answer, "text") or answer
        asked, written = strip_number(question.text()), render(text.children, base)
        if asked and written:
            yield Pair(asked, written)


def _find_property(element: Element, name: str) -> Element | None:
    wanted = {name, f"schema:{name}"}
    for one in element.walk():
        named = f"{one.get('itemprop')} {one.get('property')}".split()
        if one is not element and not wanted.isdisjoint(named):
            return one
    return None


def _as_list(value: Json) -> list[Json]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
