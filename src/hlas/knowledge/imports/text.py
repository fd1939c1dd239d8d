"""Reads text files, and Markdown that is not in our format of questions."""

import re

from hlas.knowledge.imports import Found
from hlas.knowledge.imports.blocks import BOLD_LEVEL, Block, Heading, Text
from hlas.knowledge.imports.elements import clean, tidy
from hlas.knowledge.imports.encodings import decode
from hlas.knowledge.imports.passages import Origin, make_found
from hlas.knowledge.imports.questions import is_labelled, is_question, strip_number
from hlas.knowledge.language import Language

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*")
_UNDERLINE = re.compile(r"(=|-|~){3,}")
_LONGEST_HEADING = 80


def read_text(name: str, data: bytes, url: str, language: Language | None) -> Found:
    text, warnings = decode(data)
    title = name.rpartition(".")[0] or name
    return make_found(cut_text(text), Origin(title, url, language), warnings)


def cut_text(text: str) -> list[Block]:
    """Paragraphs are separated by blank lines; a question has a line of its own."""
    blocks: list[Block] = []
    for paragraph in re.split(r"\n\s*\n", tidy(text).replace("\r\n", "\n").replace("\r", "\n")):
        lines = [line.rstrip() for line in paragraph.split("\n") if line.strip()]
        _cut_paragraph(lines, blocks)
    # A short line at the end has nothing below it.
    if blocks and isinstance(blocks[-1], Heading) and blocks[-1].level == 2:
        blocks[-1] = Text(blocks[-1].text)
    return blocks


def _cut_paragraph(lines: list[str], blocks: list[Block]) -> None:
    collected: list[str] = []
    for place, line in enumerate(lines):
        text = strip_number(clean(line))
        marked = _HEADING.fullmatch(line.strip())
        alone = len(lines) == 1 or _is_underlined(lines, place)
        if not marked and is_labelled(clean(line)):
            _add_text(collected, blocks)
            blocks.append(Text(clean(line)))
        elif marked or is_question(text):
            _add_text(collected, blocks)
            level = len(marked[1]) if marked else BOLD_LEVEL
            blocks.append(Heading(level, strip_number(marked[2]) if marked else text))
        elif alone and place == 0 and _is_title(text):
            blocks.append(Heading(2, text))
        elif not _UNDERLINE.fullmatch(line.strip()):
            collected.append(line.strip())
    _add_text(collected, blocks)


def _is_underlined(lines: list[str], place: int) -> bool:
    return place + 1 < len(lines) and _UNDERLINE.fullmatch(lines[place + 1].strip()) is not None


def _is_title(text: str) -> bool:
    return len(text) <= _LONGEST_HEADING and text[-1:] not in ".,;:!" and not text[:1].islower()


def _add_text(lines: list[str], blocks: list[Block]) -> None:
    text = "\n".join(lines)
    lines.clear()
    if text.strip():
        blocks.append(Text(text))
