"""Cuts a tree of elements into headings, text, and pairs of a question and its answer."""

import re
from dataclasses import dataclass
from typing import TypeAlias

from hlas.knowledge.imports.elements import BLOCKS, HEADINGS, Element, clean
from hlas.knowledge.imports.markdown import read_table, render
from hlas.knowledge.imports.questions import is_question, strip_number

# The level of a bold line, below those of real headings.
BOLD_LEVEL = 7

_BOLD = frozenset({"strong", "b"})
_COMPLEX = HEADINGS | {"details", "dl", "table"}
_TRIGGER = re.compile(
    r"(?:^|[\s_-])(?:faq|accordion|akordeon|toggle|collapse|collapsible|tab)s?[\w-]*"
    r"(?:title|header|heading|head|button|btn|trigger|toggle|question|summary|label)"
    r"|(?:^|[\s_-])(?:question|otazka|dotaz)(?:$|[\s_-])|accordion-button|elementor-tab-title",
    re.IGNORECASE,
)
_PANEL = re.compile(
    r"answer|odpoved|content|panel|body|collapse|obsah|text|desc|inner|(?:^|[\s_-])a(?:$|[\s_-])",
    re.IGNORECASE,
)
_TABLE_HEAD = re.compile(r"(?:question|ot[aá]zk|dotaz)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    # Most of it is links, as in a menu.
    is_links: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    question: str
    answer: str
    wordings: tuple[str, ...] = ()
    # The document says that it is a question, whatever it looks like.
    is_sure: bool = False


Block: TypeAlias = Heading | Text | Pair


def cut(root: Element, base: str) -> list[Block]:
    """The blocks in the order of the document."""
    return _Cutter(root, base).blocks


class _Cutter:
    def __init__(self, root: Element, base: str) -> None:
        self.blocks: list[Block] = []
        self._base = base
        self._ids = {one.get("id"): one for one in root.walk() if one.get("id")}
        # Panels that are part of a pair already.
        self._used: set[Element] = set()
        self._cut_children(root)

    def _cut(self, element: Element) -> None:
        if element in self._used:
            return
        pair = self._find_panel(element)
        if pair is not None:
            self._add_pair(*pair)
        elif element.tag == "details":
            self._cut_details(element)
        elif element.tag == "dl":
            self._cut_definitions(element)
        elif element.tag == "table":
            self._cut_table(element)
        elif element.tag in HEADINGS:
            if text := strip_number(element.text()):
                self.blocks.append(Heading(int(element.tag[1]), text))
        elif element.tag in {"ul", "ol", "pre"} and not self._is_complex(element):
            self._add_text([element])
        else:
            self._cut_children(element)

    def _is_complex(self, element: Element) -> bool:
        return any(
            one.tag in _COMPLEX or one.get("aria-expanded") or _TRIGGER.search(one.get("class"))
            for one in element.walk()
        )

    def _cut_children(self, element: Element) -> None:
        """Blocks stand for themselves; what is between them is a paragraph."""
        loose: list[Element | str] = []
        for child in element.children:
            if isinstance(child, str) or not _has_blocks(child):
                trigger = None if isinstance(child, str) else self._find_panel(child)
                if trigger is None:
                    loose.append(child)
                    continue
            self._add_paragraph(loose)
            loose = []
            assert isinstance(child, Element)
            self._cut(child)
        self._add_paragraph(loose)

    def _add_paragraph(self, nodes: list[Element | str]) -> None:
        """A paragraph that begins with a bold question is the question and its answer."""
        visible = [one for one in nodes if not isinstance(one, str) or one.strip()]
        first = visible[0] if visible else None
        while isinstance(first, Element) and first.tag in {"span", "font"} and len(visible) == 1:
            visible = [one for one in first.children if not isinstance(one, str) or one.strip()]
            first = visible[0] if visible else None
        if isinstance(first, Element) and first.tag in _BOLD:
            text = strip_number(first.text())
            if is_question(text):
                self.blocks.append(Heading(BOLD_LEVEL, text))
                visible = visible[1:]
        self._add_text(visible)

    def _add_text(self, nodes: list[Element | str]) -> None:
        text = render(nodes, self._base)
        if text:
            self.blocks.append(Text(text, is_links=_is_links(nodes)))

    def _add_pair(
        self,
        question: str,
        nodes: list[Element | str],
        *wordings: str,
        is_sure: bool = False,
    ) -> None:
        answer = render(nodes, self._base)
        if question and answer:
            self.blocks.append(Pair(strip_number(question), answer, wordings, is_sure))

    def _cut_details(self, element: Element) -> None:
        summary = next((one for one in element.elements if one.tag == "summary"), None)
        rest = [child for child in element.children if child is not summary]
        if summary is None or any(
            one.tag in {"details", "dl"} for one in element.walk() if one is not element
        ):
            # A group of questions: its summary is their heading.
            if summary is not None and (text := summary.text()):
                self.blocks.append(Heading(BOLD_LEVEL - 1, text))
            self._cut_children(Element("div", {}, rest))
        else:
            self._add_pair(summary.text(), rest)

    def _cut_definitions(self, element: Element) -> None:
        terms: list[str] = []
        answer: list[Element | str] = []
        for one in element.walk():
            if one.tag not in {"dt", "dd"} or not _is_within(one, element):
                continue
            if one.tag == "dt" and answer:
                self._add_pair(terms[0] if terms else "", answer, *terms[1:])
                terms, answer = [], []
            if one.tag == "dt":
                terms.append(one.text())
            else:
                answer.append(Element("p", {}, one.children))
        self._add_pair(terms[0] if terms else "", answer, *terms[1:])

    def _cut_table(self, element: Element) -> None:
        rows = read_table(element)
        if any(one.tag in _COMPLEX for one in element.walk() if one is not element) or all(
            len(row) == 1 for row in rows
        ):
            # Pages used to be laid out with tables.
            for row in rows:
                for cell in row:
                    self._cut_children(cell)
            return
        pairs = [row for row in rows if len(row) == 2]
        asked = sum(is_question(strip_number(row[0].text())) for row in pairs)
        head = bool(rows) and _TABLE_HEAD.match(rows[0][0].text()) is not None
        if len(pairs) < len(rows) / 2 or not (head or asked > len(pairs) / 2):
            self._add_text([element])
            return
        for number, row in enumerate(pairs):
            if number or not head:
                self._add_pair(row[0].text(), row[1].children, is_sure=head)

    def _find_panel(self, element: Element) -> tuple[str, list[Element | str]] | None:
        """The question and the answer of an accordion whose button this is."""
        trigger = _find_trigger(element)
        if trigger is None:
            return None
        text = trigger.text()
        panel = self._find_target(trigger) or _find_next(trigger, text)
        if panel is None or panel in self._used or not text or len(text) > 300:
            return None
        if _is_within(trigger, panel) or _is_within(panel, trigger) or not panel.text():
            return None
        # Accordions within accordions are groups of questions.
        if any(_find_trigger(one) is one for one in panel.walk() if one is not panel):
            return None
        self._used.add(panel)
        return text, panel.children

    def _find_target(self, trigger: Element) -> Element | None:
        for name in ("aria-controls", "data-bs-target", "data-target", "href"):
            found = self._ids.get(trigger.get(name).removeprefix("#"))
            if found is not None:
                return found
        return None


def _find_trigger(element: Element) -> Element | None:
    """The element, or the only thing in it, if it opens a panel."""
    for one in _descend(element):
        if one.get("role") == "tab" and not is_question(one.text()):
            continue
        if one.get("aria-expanded") or "collapse" in one.get("data-bs-toggle"):
            return one
        if _TRIGGER.search(one.get("class")) or "collapse" in one.get("data-toggle"):
            return one
    return None


def _descend(element: Element) -> list[Element]:
    """The element, its only child, the only child of that, and so on."""
    chain = [element]
    while len(chain) < 6:
        inside = [one for one in chain[-1].elements if one.text()]
        loose = any(isinstance(one, str) and one.strip() for one in chain[-1].children)
        if len(inside) != 1 or loose:
            break
        chain.append(inside[0])
    return chain


def _find_next(trigger: Element, text: str) -> Element | None:
    """What follows the button, or the elements around it that contain nothing else."""
    around: Element | None = trigger
    for _ in range(4):
        if around is None or clean(around.text()) != text:
            return None
        after = around.next_element()
        while after is not None and not after.text():
            after = after.next_element()
        if after is not None:
            known = _PANEL.search(after.get("class")) or is_question(strip_number(text))
            is_next = _find_trigger(after) is not None or after.tag in HEADINGS
            return after if known and not is_next else None
        around = around.parent
    return None


def _is_within(element: Element, outer: Element) -> bool:
    """For parts of lists: not those of a list inside."""
    above = element.parent
    while above is not None and above is not outer:
        if outer.tag == above.tag == "dl":
            return False
        above = above.parent
    return above is outer


def _has_blocks(element: Element) -> bool:
    return any(one.tag in BLOCKS for one in element.walk())


def _is_links(nodes: list[Element | str]) -> bool:
    """Whether it is a menu: nearly all of its text is links, and there are several."""
    outer = Element("div", {}, list(nodes))
    links = [one.text() for one in outer.walk() if one.tag == "a"]
    whole = len(outer.text())
    return len(links) > 1 and whole > 0 and sum(map(len, links)) > 0.7 * whole
