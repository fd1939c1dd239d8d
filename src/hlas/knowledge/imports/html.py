"""Reads an HTML page: its questions with answers, then its prose."""

import re
from urllib.parse import urljoin

from hlas.knowledge.imports import Document
from hlas.knowledge.imports.blocks import cut
from hlas.knowledge.imports.elements import Element, clean, parse_html
from hlas.knowledge.imports.encodings import decode
from hlas.knowledge.imports.markdown import resolve
from hlas.knowledge.imports.passages import Origin, make_found
from hlas.knowledge.imports.structured import find_declared
from hlas.knowledge.language import Language

MOST_LINKS = 2000

_FURNITURE_TAGS = frozenset({"nav", "footer", "aside", "dialog"})
_FURNITURE_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "complementary", "search", "dialog", "alertdialog"}
)
_FURNITURE = re.compile(
    r"(?:^|[\s_-])(?:cookies?|cookie-?(?:bar|banner|notice|consent)|consent|gdpr|newsletter|"
    r"breadcrumbs?|drobeckova|share|sharing|social|menu|navbar|navigation|nav|sidebar|pagination|"
    r"pager|popup|modal|footer|paticka|skip-?link|related|comments?|advert|banner)(?:$|[\s_-])",
    re.IGNORECASE,
)
_KEPT_TAGS = frozenset({"html", "body", "main", "article", "h1", "h2", "h3"})
# A part with more of the page's text than this is its content, whatever its class says.
_LARGEST_FURNITURE = 0.5


def read_html(
    name: str, data: bytes, content_type: str, url: str, language: Language | None
) -> Document:
    text, warnings = decode(data, content_type)
    root = parse_html(text)
    base = _find_base(root, url)
    links = _find_links(root, base)
    declared, invalid = find_declared(root, base)
    body = next((one for one in root.elements if one.tag == "body"), root)
    _remove_furniture(body)
    content = _find_content(body)
    title = _find_title(root, content) or name
    origin = Origin(title, url, language, root.get("lang"))
    found = make_found(cut(content, base), origin, [*warnings, *invalid], declared)
    return Document(found, links)


def _find_base(root: Element, url: str) -> str:
    href = next((one.get("href") for one in root.elements if one.tag == "base"), "")
    try:
        return urljoin(url, href)
    except ValueError:
        return url


def _find_links(root: Element, base: str) -> tuple[str, ...]:
    links: dict[str, None] = {}
    for one in root.walk():
        if one.tag == "a" and "nofollow" not in one.get("rel"):
            target = resolve(base, one.get("href"))
            if target.startswith(("http://", "https://")):
                links.setdefault(target.partition("#")[0])
    return tuple(links)[:MOST_LINKS]


def _find_title(root: Element, content: Element) -> str:
    """The first heading; else the title, without the name of the site."""
    for one in content.walk():
        if one.tag == "h1" and (text := one.text()):
            return text
    title = clean(next((one.text() for one in root.elements if one.tag == "title"), ""))
    return re.split(r"\s[|\u2013—·»]\s", title)[0].strip()


def _find_content(body: Element) -> Element:
    """The main part of the page, if it is marked and has the text."""
    whole = len(body.text())
    for one in body.walk():
        is_main = one.tag == "main" or one.get("role") == "main"
        if is_main and len(one.text()) * 4 > whole:
            return one
    return body


def _remove_furniture(body: Element) -> None:
    """Take out menus, footers, cookie bars and the like."""
    most = len(body.text()) * _LARGEST_FURNITURE
    waiting = [body]
    while waiting:
        element = waiting.pop()
        kept = [one for one in element.children if not _is_furniture(one, most)]
        element.children = kept
        waiting.extend(element.elements)


def _is_furniture(node: Element | str, most: float) -> bool:
    if isinstance(node, str) or node.tag in _KEPT_TAGS:
        return False
    named = f"{node.get('class')} {node.get('id')}"
    suspect = (
        node.tag in _FURNITURE_TAGS
        or node.get("role") in _FURNITURE_ROLES
        or _FURNITURE.search(named) is not None
        or (node.tag == "header" and not _has_heading(node))
    )
    if not suspect:
        return False
    return node.tag in {"nav", "footer"} or len(node.text()) <= most


def _has_heading(element: Element) -> bool:
    return any(one.tag == "h1" for one in element.walk())
