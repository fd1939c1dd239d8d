"""Reads a Word file (.docx): paragraphs, headings, lists, tables, links."""

import io
import re
import zipfile
import zlib
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element as Xml

from hlas.knowledge.entries import KnowledgeError
from hlas.knowledge.imports import Found
from hlas.knowledge.imports.blocks import cut
from hlas.knowledge.imports.elements import Element
from hlas.knowledge.imports.passages import Origin, make_found
from hlas.knowledge.language import Language

# The limit for one unpacked part: the text of 10 000 pages.
LARGEST_PART = 50 * 2**20

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LINK_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DEEPEST = 60
_HEADING = re.compile(r"(?:heading|nadpis) ?([1-9])", re.IGNORECASE)
_OFF = frozenset({"0", "false", "none"})


def read_docx(name: str, data: bytes, url: str, language: Language | None) -> Found:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            document = _read_part(archive, "word/document.xml")
            styles = _read_part(archive, "word/styles.xml")
            relations = _read_part(archive, "word/_rels/document.xml.rels")
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, OSError):
        raise KnowledgeError(f"{name}: not a readable Word file; it may be damaged") from None
    except RuntimeError:
        raise KnowledgeError(f"{name}: protected by a password; save it without one") from None
    except ET.ParseError:
        raise KnowledgeError(f"{name}: not a readable Word file; its XML is not valid") from None
    if document is None:
        raise KnowledgeError(f"{name}: not a Word document")
    body = document.find(f"{_W}body")
    root = Element("body")
    if body is not None:
        _Copier(_read_styles(styles), _read_links(relations)).copy(body, root)
    title = next((one.text() for one in root.walk() if one.tag == "h1"), "")
    origin = Origin(title or name.rpartition(".")[0] or name, url, language)
    return make_found(cut(root, ""), origin)


def _read_part(archive: zipfile.ZipFile, name: str) -> Xml | None:
    """Parse a part; nothing is read beyond the limit, whatever size the archive declares."""
    if name not in archive.namelist():
        return None
    with archive.open(name) as part:
        data = part.read(LARGEST_PART + 1)
    # Word writes no document type, and UTF-8; entities of one could expand without end.
    if len(data) > LARGEST_PART or b"<!DOCTYPE" in data or b"\0" in data:
        raise ValueError
    return ET.fromstring(data)  # noqa: S314  # see above


def _read_styles(styles: Xml | None) -> dict[str, int]:
    """The level of each paragraph style that is a heading."""
    levels: dict[str, int] = {}
    for style in styles.iter(f"{_W}style") if styles is not None else ():
        name = style.find(f"{_W}name")
        text = name.get(f"{_W}val", "") if name is not None else ""
        found = _HEADING.fullmatch(text.strip())
        if found or text.lower() in {"title", "název"}:
            levels[style.get(f"{_W}styleId", "")] = min(int(found[1]), 6) if found else 1
    return levels


def _read_links(relations: Xml | None) -> dict[str, str]:
    if relations is None:
        return {}
    return {one.get("Id", ""): one.get("Target", "") for one in relations}


class _Copier:
    """Copies Word's XML into elements named as in HTML."""

    def __init__(self, levels: dict[str, int], links: dict[str, str]) -> None:
        self._levels = levels
        self._links = links

    def copy(self, source: Xml, target: Element, depth: int = 0) -> None:
        """Copy paragraphs and tables; anything around them, such as a form field, is passed by."""
        for child in source if depth < _DEEPEST else ():
            if child.tag == f"{_W}p":
                self._copy_paragraph(child, target)
            elif child.tag == f"{_W}tbl":
                self._copy_table(child, target.add("table"), depth)
            elif child.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml"}:
                self.copy(child, target, depth + 1)

    def _copy_table(self, source: Xml, target: Element, depth: int) -> None:
        for row in source.findall(f"{_W}tr"):
            line = target.add("tr")
            is_head = row.find(f"{_W}trPr/{_W}tblHeader") is not None
            for cell in row.findall(f"{_W}tc"):
                self.copy(cell, line.add("th" if is_head else "td"), depth + 1)

    def _copy_paragraph(self, source: Xml, target: Element) -> None:
        level, is_listed = self._read_properties(source.find(f"{_W}pPr"))
        if level:
            inside = target.add(f"h{level}")
        elif is_listed:
            last = target.elements[-1] if target.elements else None
            inside = (last if last and last.tag == "ul" else target.add("ul")).add("li")
        else:
            inside = target.add("p")
        self._copy_runs(source, inside)

    def _read_properties(self, properties: Xml | None) -> tuple[int, bool]:
        """The level of a heading or 0, and whether it is an item of a list."""
        if properties is None:
            return 0, False
        style = properties.find(f"{_W}pStyle")
        level = self._levels.get(style.get(f"{_W}val", ""), 0) if style is not None else 0
        outline = properties.find(f"{_W}outlineLvl")
        if not level and outline is not None and outline.get(f"{_W}val", "") in set("012345"):
            level = int(outline.get(f"{_W}val", "0")) + 1
        return level, properties.find(f"{_W}numPr") is not None

    def _copy_runs(self, source: Xml, target: Element, depth: int = 0) -> None:
        for child in source if depth < _DEEPEST else ():
            if child.tag == f"{_W}r":
                self._copy_run(child, target)
            elif child.tag == f"{_W}hyperlink":
                href = self._links.get(child.get(_LINK_ID, ""), "")
                self._copy_runs(child, target.add("a", href=href), depth + 1)
            elif child.tag not in {f"{_W}del", f"{_W}moveFrom", f"{_W}pPr"}:
                self._copy_runs(child, target, depth + 1)

    def _copy_run(self, source: Xml, target: Element) -> None:
        bold = source.find(f"{_W}rPr/{_W}b")
        is_bold = bold is not None and bold.get(f"{_W}val", "1") not in _OFF
        last = target.elements[-1] if target.elements else None
        inside = target
        if is_bold:
            # Word cuts bold text into many runs.
            joined = last if last is not None and target.children[-1] is last else None
            inside = joined if joined and joined.tag == "strong" else target.add("strong")
        for child in source:
            if child.tag == f"{_W}t":
                inside.children.append(child.text or "")
            elif child.tag in {f"{_W}br", f"{_W}cr"}:
                target.add("br")
            elif child.tag == f"{_W}tab":
                inside.children.append(" ")
