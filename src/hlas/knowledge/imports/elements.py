"""A tree of elements, named as in HTML: the common form of all types of documents."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

# Deeper elements become children of the last one, so that recursion is bounded.
DEEPEST = 100

HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
BLOCKS = HEADINGS | frozenset(
    """
    address article aside blockquote body center dd details dialog div dl dt fieldset figcaption
    figure footer form header hr legend li main menu nav ol p pre section summary table tbody td
    tfoot th thead tr ul
    """.split()  # noqa: SIM905  # a paragraph of words reads better than a page of quotes
)
_SKIPPED = frozenset(
    """
    audio canvas datalist embed frame frameset head iframe img input link map meta noscript object
    option picture select source style svg template textarea track video
    """.split()  # noqa: SIM905  # see above
)
_SPACE = re.compile(r"\s+")
# Nobody sees these, and some cannot be stored.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


@dataclass(eq=False, slots=True)
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element | str"] = field(default_factory=list)
    parent: "Element | None" = None

    def add(self, tag: str, text: str = "", **attributes: str) -> "Element":
        """Append an element with this text, and return it."""
        child = Element(tag, attributes, [text] if text else [], self)
        self.children.append(child)
        return child

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")

    @property
    def elements(self) -> list["Element"]:
        return [child for child in self.children if isinstance(child, Element)]

    def walk(self) -> Iterator["Element"]:
        """The element and all below it, in the order of the document."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.elements))

    def text(self) -> str:
        """The text on one line."""
        pieces: list[str] = []
        _collect(self, pieces)
        return clean("".join(pieces))

    def next_element(self) -> "Element | None":
        siblings = self.parent.elements if self.parent else [self]
        after = siblings.index(self) + 1
        return siblings[after] if after < len(siblings) else None


def clean(text: str) -> str:
    """One line in composed characters, without those that nobody sees."""
    return _SPACE.sub(" ", tidy(text)).strip()


def tidy(text: str) -> str:
    return _HIDDEN.sub("", unicodedata.normalize("NFC", text))


def parse_html(text: str) -> Element:
    """Parse as browsers do; the root has the head's title, metas and links, and the body."""
    parser = LexborHTMLParser(text)
    root = Element("html", _read_attributes(parser.root))
    for node in parser.css("title, meta, link, base"):
        root.add(node.tag or "", node.text(), **_read_attributes(node))
    if parser.body is not None:
        _copy(parser.body, root)
    # JSON-LD may stand in the head, too.
    for node in parser.css("head script"):
        _copy(node, root)
    return root


def _copy(top: LexborNode, parent: Element) -> None:
    """Copy without recursion: pages may be nested without end."""
    waiting: list[tuple[LexborNode, Element, int]] = [(top, parent, 0)]
    while waiting:
        node, above, depth = waiting.pop()
        if node.is_text_node:
            above.children.append(node.text_content or "")
            continue
        tag = node.tag or ""
        if not node.is_element_node or tag in _SKIPPED or _is_code(node, tag):
            continue
        element = Element(tag, _read_attributes(node), [], above)
        above.children.append(element)
        below = element if depth < DEEPEST else above
        children = []
        child = node.first_child
        while child is not None:
            children.append((child, below, depth + 1))
            child = child.next
        waiting.extend(reversed(children))


def _is_code(node: LexborNode, tag: str) -> bool:
    return tag == "script" and "ld+json" not in (node.attributes.get("type") or "").lower()


def _read_attributes(node: LexborNode | None) -> dict[str, str]:
    if node is None:
        return {}
    return {name: value or "" for name, value in node.attributes.items()}


def _collect(element: Element, pieces: list[str]) -> None:
    if element.tag == "script":
        return
    apart = element.tag in BLOCKS or element.tag == "br"
    if apart:
        pieces.append(" ")
    for child in element.children:
        if isinstance(child, str):
            pieces.append(child)
        else:
            _collect(child, pieces)
    if apart:
        pieces.append(" ")
