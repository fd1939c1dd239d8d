"""Writes small PDF and Word files for tests."""

import io
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

_NAMES = """
aacute ccaron dcaron eacute ecaron iacute ncaron oacute rcaron scaron tcaron uacute uring yacute
zcaron Aacute Ccaron Dcaron Eacute Ecaron Iacute Ncaron Oacute Rcaron Scaron Tcaron Uacute Uring
Yacute Zcaron
"""
_GLYPHS = dict(zip("áčďéěíňóřšťúůýžÁČĎÉĚÍŇÓŘŠŤÚŮÝŽ", _NAMES.split(), strict=True))
_CODES = {letter: 128 + number for number, letter in enumerate(_GLYPHS)}


@dataclass(frozen=True)
class Line:
    x: float
    y: float
    text: str
    size: float = 10
    bold: bool = False


def make_pdf(pages: Iterable[Sequence[Line]], *, compress: bool = True) -> bytes:
    """A PDF in Helvetica with Czech letters; lines are drawn in the order they are given."""
    differences = " ".join(f"/{glyph}" for glyph in _GLYPHS.values())
    encoding = (
        f"<< /Type /Encoding /BaseEncoding /WinAnsiEncoding /Differences [128 {differences}] >>"
    )
    fonts = [
        f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} /Encoding {encoding} >>".encode()
        for name in ("Helvetica", "Helvetica-Bold")
    ]
    objects: list[bytes] = [b"", b"", *fonts]
    kids = []
    for page in pages:
        content = b"\n".join(_draw(line) for line in page)
        extra = b""
        if compress:
            content, extra = zlib.compress(content), b"/Filter /FlateDecode "
        objects.append(
            b"<< %s/Length %d >>\nstream\n%s\nendstream" % (extra, len(content), content)
        )
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(kids))
    return assemble(objects)


def _draw(line: Line) -> bytes:
    text = bytes(_CODES.get(letter) or ord(letter) for letter in line.text)
    for special in (b"\\", b"(", b")"):
        text = text.replace(special, b"\\" + special)
    font = 2 if line.bold else 1
    return b"BT /F%d %.1f Tf %.1f %.1f Td (%s) Tj ET" % (font, line.size, line.x, line.y, text)


def assemble(objects: Sequence[bytes]) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    out.write(trailer % (len(objects) + 1, start))
    return out.getvalue()


_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def paragraph(text: str, style: str = "", *, listed: bool = False, bold: bool = False) -> str:
    properties = f'<w:pStyle w:val="{style}"/>' if style else ""
    properties += '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>' if listed else ""
    run = "<w:rPr><w:b/></w:rPr>" if bold else ""
    return (
        f"<w:p><w:pPr>{properties}</w:pPr>"
        f'<w:r>{run}<w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'
    )


def table(*rows: Sequence[str]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def make_docx(*content: str, links: Sequence[str] = (), extra: str = "") -> bytes:
    """A Word file of paragraphs and tables; `links` are the targets of rId1, rId2 and so on."""
    document = (
        f'<?xml version="1.0" encoding="UTF-8"?>{extra}<w:document xmlns:w="{_WORD}" '
        f'xmlns:r="{_LINKS}"><w:body>{"".join(content)}</w:body></w:document>'
    )
    # Word in Czech: the ids of styles are translated, their names are not.
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{style}"><w:name w:val="{name}"/></w:style>'
        for style, name in (("Nadpis1", "heading 1"), ("Nadpis2", "heading 2"), ("Nzev", "Title"))
    )
    relations = "".join(
        f'<Relationship Id="rId{number}" Type="{_LINKS}/hyperlink" Target="{escape(target)}" '
        'TargetMode="External"/>'
        for number, target in zip(count(1), links, strict=False)
    )
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", document)
        archive.writestr("word/styles.xml", f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>')
        archive.writestr(
            "word/_rels/document.xml.rels",
            f'<Relationships xmlns="{package}">{relations}</Relationships>',
        )
    return out.getvalue()
