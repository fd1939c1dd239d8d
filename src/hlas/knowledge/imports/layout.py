"""Puts the pieces of text of a PDF page in reading order, and cuts them into blocks."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hlas.knowledge.imports.blocks import BOLD_LEVEL, Block, Heading, Text
from hlas.knowledge.imports.elements import clean
from hlas.knowledge.imports.questions import is_question, strip_number

# A character is about this wide, in sizes of its font.
WIDTH = 0.45
# How far the beginnings of lines of a column are apart, in points.
TOLERANCE = 4.0
MOST_COLUMNS = 4

_BULLET = re.compile(r"[•▪●◦‣·\u2013-]\s+(?=\S)")
_PAGE_NUMBER = re.compile(
    r"(?:strana|str\.|page|p\.)?\s*\d{1,4}\s*(?:(?:/|z|of)\s*\d{1,4})?", re.IGNORECASE
)
_END = re.compile(r"[.!?:…][\"“”)]?$")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is drawn at once; y grows upwards."""

    x: float
    y: float
    size: float
    bold: bool
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    y: float
    size: float
    bold: bool


def order(pieces: list[Piece], columns: int = MOST_COLUMNS) -> list[Line]:
    """The lines of a page, column by column."""
    rows = _group(pieces)
    right = _find_column(rows) if columns > 1 else None
    if right is None:
        return [_join_row(row) for row in rows]
    lines: list[Line] = []
    left_part: list[Piece] = []
    right_part: list[Piece] = []
    for row in rows:
        if any(_crosses(piece, right) for piece in row):
            # A heading over both columns ends them.
            lines += order(left_part, columns - 1) + order(right_part, columns - 1)
            lines.append(_join_row(row))
            left_part, right_part = [], []
        else:
            left_part += [piece for piece in row if piece.x < right - TOLERANCE]
            right_part += [piece for piece in row if piece.x >= right - TOLERANCE]
    return lines + order(left_part, columns - 1) + order(right_part, columns - 1)


def _group(pieces: list[Piece]) -> list[list[Piece]]:
    """Rows from the top, each from the left."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda one: -one.y):
        if rows and abs(rows[-1][0].y - piece.y) < 0.4 * max(piece.size, 1):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    for row in rows:
        row.sort(key=lambda one: one.x)
    return rows


def _find_column(rows: list[list[Piece]]) -> float | None:
    """Where a second column begins: many rows have text that begins there, few cross it."""
    places = [piece.x for row in rows for piece in row]
    if not places:
        return None
    nearest, farthest = min(places), max(places)
    starts = Counter(
        round(x / TOLERANCE) for row in rows for x in {piece.x for piece in row} if x > nearest
    )
    for place, _ in starts.most_common(5):
        x = place * TOLERANCE
        if x - nearest < 0.2 * (farthest - nearest + 200):
            continue
        begun = sum(any(abs(one.x - x) <= TOLERANCE for one in row) for row in rows)
        crossed = sum(any(_crosses(one, x) for one in row) for row in rows)
        left = sum(row[0].x < x - TOLERANCE for row in rows)
        if begun >= max(3, 0.25 * len(rows)) and left >= 3 and crossed <= 0.25 * len(rows):
            return x
    return None


def _crosses(piece: Piece, x: float) -> bool:
    end = piece.x + len(piece.text.strip()) * piece.size * WIDTH
    return piece.x < x - TOLERANCE and end > x + 2 * TOLERANCE


def _join_row(row: list[Piece]) -> Line:
    text = row[0].text
    for before, piece in pairwise(row):
        end = before.x + len(before.text) * before.size * WIDTH * 0.8
        is_apart = piece.x - end > piece.size or piece.text.startswith(" ")
        text += f" {piece.text}" if is_apart else piece.text
    largest = max(piece.size for piece in row)
    return Line(clean(text), row[0].y, largest, all(piece.bold for piece in row))


def drop_repeated(pages: list[list[Line]]) -> list[list[Line]]:
    """Without running heads, footers and page numbers."""
    edges = [_find_edges(page) for page in pages]
    times = Counter(name for edge in edges for name in {_name(line) for line in edge})
    common = {name for name, number in times.items() if number >= 3 and number > len(pages) / 2}
    return [
        [
            line
            for line in page
            if line not in edge or not (_name(line) in common or _PAGE_NUMBER.fullmatch(line.text))
        ]
        for page, edge in zip(pages, edges, strict=True)
    ]


def _find_edges(page: list[Line]) -> set[Line]:
    """The first and the last two lines of the paper; a column may end between them."""
    by_height = sorted(page, key=lambda line: line.y)
    return {*by_height[:2], *by_height[-2:]}


def _name(line: Line) -> str:
    return re.sub(r"\d+", "0", line.text)


def cut_lines(pages: Iterable[list[Line]]) -> list[Block]:
    """Headings are larger or bold; a question may be an ordinary line."""
    lines = [line for page in pages for line in page if line.text]
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    gaps = sorted(a.y - b.y for a, b in pairwise(lines) if 0 < a.y - b.y < 4 * body)
    spacing = gaps[len(gaps) // 2] if gaps else body * 1.2
    blocks: list[Block] = []
    place = 0
    while place < len(lines):
        start = place
        paragraph = _is_start(lines, start, spacing)
        place = _end_of_question(lines, start) if paragraph else start
        if place > start:
            text = strip_number(_join(lines[start:place]))
            blocks.append(Heading(_level(lines[start], body), text))
            continue
        place = _end_of_heading(lines, start, body)
        if place > start:
            blocks.append(Heading(_level(lines[start], body), _join(lines[start:place])))
            continue
        place = start + 1
        while place < len(lines) and not _is_start(lines, place, spacing):
            if _end_of_heading(lines, place, body) > place:
                break
            place += 1
        blocks.append(Text(_write(lines[start:place])))
    return blocks


def _is_start(lines: list[Line], place: int, spacing: float) -> bool:
    """Whether a paragraph begins with this line."""
    if place == 0:
        return True
    before, line = lines[place - 1], lines[place]
    gap = before.y - line.y
    return (
        gap > 1.35 * spacing
        or before.bold != line.bold
        or abs(before.size - line.size) > 0.5
        or (_end_of_question(lines, place) > place and _END.search(before.text) is not None)
    )


def _end_of_question(lines: list[Line], start: int) -> int:
    """The line after a question of up to three lines; `start` if there is none."""
    text = ""
    for place in range(start, min(start + 3, len(lines))):
        line = lines[place]
        if (line.bold, line.size) != (lines[start].bold, lines[start].size):
            break
        text = f"{text} {line.text}".strip()
        if is_question(strip_number(text)) and not re.search(
            r"[.!?]\s+[A-ZÁ-Ž]", strip_number(text)
        ):
            return place + 1
        if _END.search(line.text):
            break
    return start


def _end_of_heading(lines: list[Line], start: int, body: float) -> int:
    place = start
    while (
        place < min(start + 3, len(lines))
        and _level(lines[place], body) < BOLD_LEVEL + 1
        and (lines[place].bold, lines[place].size) == (lines[start].bold, lines[start].size)
        and len(lines[place].text) < 120
    ):
        place += 1
    # Bold paragraphs are no headings.
    is_whole = place == len(lines) or _level(lines[place], body) != _level(lines[start], body)
    return place if place > start and is_whole else start


def _level(line: Line, body: float) -> int:
    """Larger text is higher; an ordinary line is below all headings."""
    if line.size > 1.5 * body:
        return 1
    if line.size > 1.12 * body:
        return 2
    return BOLD_LEVEL if line.bold else BOLD_LEVEL + 1


def _join(lines: list[Line]) -> str:
    text = ""
    for line in lines:
        if text.endswith("-") and line.text[:1].islower():
            text = text[:-1] + line.text
        else:
            text = f"{text} {line.text}"
    return text.strip()


def _write(lines: list[Line]) -> str:
    """A paragraph, with lines that begin with a bullet as a list."""
    groups: list[list[Line]] = []
    for line in lines:
        if not groups or _BULLET.match(line.text):
            groups.append([])
        groups[-1].append(line)
    return "\n".join(_BULLET.sub("- ", _join(group), count=1) for group in groups)
