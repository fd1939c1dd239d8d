"""Writes elements in the Markdown that the widget shows: bold, lists, links, code."""

import re
from urllib.parse import quote, urljoin, urlsplit

from hlas.knowledge.imports.elements import BLOCKS, HEADINGS, Element, clean, tidy

_LINKED = frozenset({"http", "https", "mailto", "tel"})
_BOLD = frozenset({"strong", "b"})
_ITALIC = frozenset({"em", "i"})
_LONGEST_LINK = 1000


def render(nodes: list[Element | str], base: str) -> str:
    """The text of these nodes; addresses are relative to `base`."""
    writer = _Writer(base)
    for node in nodes:
        writer.write(node)
    writer.end_block()
    return "\n\n".join(writer.blocks)


class _Writer:
    """Collects blocks, which blank lines will separate."""

    def __init__(self, base: str) -> None:
        self.blocks: list[str] = []
        self._base = base
        self._line: list[str] = []

    def end_block(self) -> None:
        lines = (clean(line) for line in "".join(self._line).split("\n"))
        text = "\n".join(line for line in lines if line)
        self._line = []
        if text:
            self.blocks.append(text)

    def write(self, node: Element | str) -> None:
        if isinstance(node, str):
            self._line.append(re.sub(r"\s+", " ", node))
            return
        match node.tag:
            case "script" | "button" if node.tag == "script" or not node.text():
                pass
            case "br":
                self._line.append("\n")
            case "ul" | "ol" | "menu":
                self._add(_write_list(node, self._base, ""))
            case "table":
                self._add(_write_table(node, self._base))
            case "pre":
                self._add(["```", *tidy(_raw_text(node)).strip("\n").splitlines(), "```"])
            case tag if tag in HEADINGS:
                self._add([f"**{text}**" if (text := node.text()) else ""])
            case tag if tag in BLOCKS:
                self.end_block()
                self._write_all(node)
                self.end_block()
            case _:
                self._write_inline(node)

    def _write_all(self, node: Element) -> None:
        for child in node.children:
            self.write(child)

    def _add(self, lines: list[str]) -> None:
        self.end_block()
        text = "\n".join(line for line in lines if line)
        if text:
            self.blocks.append(text)

    def _write_inline(self, node: Element) -> None:
        if any(one.tag in BLOCKS or one.tag == "br" for one in node.walk()):
            self._write_all(node)
        elif node.tag in _BOLD:
            self._line.append(_mark("**", _join_inline(node, self._base)))
        elif node.tag in _ITALIC:
            self._line.append(_mark("*", _join_inline(node, self._base)))
        elif node.tag == "code":
            self._line.append(_mark("`", node.text()))
        elif node.tag == "a":
            self._line.append(_write_link(node, self._base))
        else:
            self._write_all(node)


def _join_inline(node: Element, base: str) -> str:
    """Text with links only: marks of the same kind cannot be nested."""
    pieces = [
        child
        if isinstance(child, str)
        else _write_link(child, base)
        if child.tag == "a"
        else child.text()
        for child in node.children
    ]
    return re.sub(r"\s+", " ", "".join(pieces))


def _mark(mark: str, text: str) -> str:
    """Marks stand at the words, with the spaces outside."""
    inner = text.strip().replace(mark, "")
    if not inner:
        return text
    before = " " if text[0].isspace() else ""
    after = " " if text[-1].isspace() else ""
    return f"{before}{mark}{inner}{mark}{after}"


def _write_link(node: Element, base: str) -> str:
    label = node.text().replace("[", "").replace("]", "")
    url = resolve(base, node.get("href"))
    if not label or not url or label == url:
        return label
    return f"[{label}]({url})"


def resolve(base: str, href: str) -> str:
    """The absolute address of a link; empty for what cannot be shown."""
    try:
        url = urljoin(base, href.strip())
        scheme = urlsplit(url).scheme
    except ValueError:
        return ""
    if scheme not in _LINKED or len(url) > _LONGEST_LINK or href.startswith("#"):
        return ""
    return quote(tidy(url), safe="%/:?#@!$&'*+,;=~[]", encoding="utf-8")


def _write_list(node: Element, base: str, indent: str) -> list[str]:
    lines: list[str] = []
    number = 0
    for item in node.elements:
        inner = [one for one in item.elements if one.tag in {"ul", "ol"}]
        own = [child for child in item.children if child not in inner]
        text = " ".join(render(own, base).split("\n")).replace("  ", " ")
        if text:
            number += 1
            mark = f"{number}." if node.tag == "ol" else "-"
            lines.append(f"{indent}{mark} {text}")
        for one in inner:
            lines += _write_list(one, base, f"{indent}  ")
    return lines


def read_table(node: Element) -> list[list[Element]]:
    """The cells of each row, without those of tables inside."""
    rows: list[list[Element]] = []
    waiting = list(reversed(node.elements))
    while waiting:
        element = waiting.pop()
        if element.tag == "tr":
            rows.append([cell for cell in element.elements if cell.tag in {"td", "th"}])
        elif element.tag in {"thead", "tbody", "tfoot"}:
            waiting.extend(reversed(element.elements))
    return [row for row in rows if row]


def _write_table(node: Element, base: str) -> list[str]:
    """A line for each row: its first cell, then the others with the names of their columns."""
    rows = read_table(node)
    lines: list[str] = []
    names: list[str] = []
    for row in rows:
        cells = [" ".join(render(cell.children, base).split()) for cell in row]
        if not names and len(rows) > 1 and all(cell.tag == "th" for cell in row):
            names = cells
            continue
        if len(names) != len(cells) or len(cells) == 2:
            rest = [cell for cell in cells[1:] if cell]
        else:
            pairs = zip(names[1:], cells[1:], strict=True)
            rest = [f"{name} {cell}".strip() for name, cell in pairs if cell]
        first = cells[0].rstrip(":")
        line = f"{first}: {', '.join(rest)}" if first and rest else first or ", ".join(rest)
        if line:
            lines.append(f"- {line}")
    return lines


def _raw_text(node: Element) -> str:
    return "".join(child if isinstance(child, str) else _raw_text(child) for child in node.children)
