"""Reads a PDF file."""

import io
import logging
from collections.abc import Mapping

import pypdf
from pypdf.errors import PyPdfError

from hlas.knowledge.entries import KnowledgeError
from hlas.knowledge.imports import Found
from hlas.knowledge.imports.elements import clean
from hlas.knowledge.imports.layout import Line, Piece, cut_lines, drop_repeated, order
from hlas.knowledge.imports.passages import Origin, make_found
from hlas.knowledge.language import Language

MOST_PAGES = 500
MOST_PIECES = 20_000

# What the library complains about is in our warnings, or does not matter.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)


def read_pdf(name: str, data: bytes, url: str, language: Language | None) -> Found:
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise KnowledgeError(f"{name}: protected by a password; save it without one")
        count = len(reader.pages)
        title = clean((reader.metadata and reader.metadata.title) or "")
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise KnowledgeError(f"{name}: not a readable PDF file; it may be damaged") from None
    if count > MOST_PAGES:
        raise KnowledgeError(f"{name}: {count} pages; at most {MOST_PAGES} can be imported")
    pages, warnings = _read_pages(reader, count)
    if not any(pages):
        raise KnowledgeError(
            f"{name}: no text, only images; save it with text recognition (OCR)"
            if not warnings
            else f"{name}: no page can be read; the file may be damaged"
        )
    empty = [str(number) for number, page in enumerate(pages, start=1) if not page]
    if empty:
        warnings.append(f"no text on page {', '.join(empty[:10])}{' …' if empty[10:] else ''}")
    blocks = cut_lines(drop_repeated(pages))
    return make_found(
        blocks, Origin(title or name.rpartition(".")[0] or name, url, language), warnings
    )


def _read_pages(reader: pypdf.PdfReader, count: int) -> tuple[list[list[Line]], list[str]]:
    pages: list[list[Line]] = []
    broken: list[str] = []
    for number in range(count):
        try:
            pages.append(order(_read_pieces(reader.pages[number])))
        # The library raises errors of many types for damaged files.
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001
            pages.append([])
            broken.append(str(number + 1))
    return pages, [f"page {', '.join(broken[:10])} cannot be read"] if broken else []


def _read_pieces(page: pypdf.PageObject) -> list[Piece]:
    pieces: list[Piece] = []

    def take(
        text: str, cm: list[float], tm: list[float], font: Mapping[str, object] | None, size: float
    ) -> None:
        if not text.strip() or len(pieces) >= MOST_PIECES:
            return
        x = tm[4] * cm[0] + tm[5] * cm[2] + cm[4]
        y = tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
        scale = (abs(tm[3]) or abs(tm[1])) * (abs(cm[3]) or abs(cm[1]))
        height = round(abs(size) * scale, 1) or 1.0
        bold = "bold" in str((font or {}).get("/BaseFont", "")).lower()
        # A piece may have several lines, all placed where it begins.
        for place, line in enumerate(text.strip("\n").split("\n")):
            if line.strip():
                pieces.append(Piece(x, y - place * height * 1.2, height, bold, line))

    page.extract_text(visitor_text=take)
    return pieces
