"""Knowledge from files: Markdown with a heading for each question, or CSV with a header."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from hlas.knowledge.entries import (
    LONGEST_ANSWER,
    LONGEST_KEYWORD,
    LONGEST_QUESTION,
    MOST_KEYWORDS,
    Entry,
    KnowledgeError,
)
from hlas.knowledge.language import LANGUAGES, Language

COLUMNS = ("question", "answer", "keywords", "language")

_HEADING = re.compile(r"##(?!#)\s*(.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_FIELD = re.compile(r"(keywords|language):(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry as written in a file, not checked yet."""

    line: int
    question: str
    answer: str
    keywords: str
    language: str


def read(path: Path, language: Language | None = None) -> list[Entry]:
    """The entries of a file; `language` is the default of entries that name none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror or error}") from None
    return parse(path.name, data, language)


def parse(name: str, data: bytes, language: Language | None = None) -> list[Entry]:
    """Return every entry, or raise with the line of the first problem."""
    text = _decode(name, data)
    is_csv = name.lower().endswith(".csv")
    drafts = list(_parse_csv(name, text) if is_csv else _parse_markdown(text))
    if not drafts:
        wanted = "rows under its header" if is_csv else "`## question` lines"
        raise KnowledgeError(f"{name}: no entries; it has no {wanted}")
    problems = [found for found in map(_find_problem, drafts) if found] + _find_repeats(drafts)
    if problems:
        line, what = min(problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise KnowledgeError(f"{name}, line {line}: {what}{more}")
    return [_make_entry(draft, language) for draft in drafts]


def _decode(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise KnowledgeError(f"{name}, line {line}: not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise KnowledgeError(f"{name}, line {line}: a NUL character; is this a text file?")
    return text


def _parse_markdown(text: str) -> Iterator[Draft]:
    """Text before the first question is an introduction for people, and is skipped."""
    heading: tuple[int, str] | None = None
    fields: dict[str, str] = {}
    answer: list[str] = []
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= _FENCE.match(line) is not None
        found = None if fenced else _HEADING.fullmatch(line.rstrip())
        if found:
            if heading:
                yield _end_section(heading, fields, answer)
            heading, fields, answer = (number, found[1]), {}, []
        elif not answer and (field := _FIELD.fullmatch(line.strip())):
            fields[field[1].lower()] = field[2]
        elif answer or line.strip():
            answer.append(line)
    if heading:
        yield _end_section(heading, fields, answer)


def _end_section(heading: tuple[int, str], fields: dict[str, str], answer: list[str]) -> Draft:
    line, question = heading
    return Draft(
        line,
        question.strip(),
        "\n".join(answer).strip(),
        fields.get("keywords", ""),
        fields.get("language", ""),
    )


def _parse_csv(name: str, text: str) -> Iterator[Draft]:
    head = text.partition("\n")[0]
    # Spreadsheets separate cells by semicolons in locales with a decimal comma, as in Czech.
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = [column.strip().lower() for column in next(reader, [])]
        _check_header(name, columns)
        start = reader.line_num + 1
        for row in reader:
            if any(cell.strip() for cell in row):
                yield _make_draft(name, start, columns, row)
            start = reader.line_num + 1
    except csv.Error as error:
        raise KnowledgeError(f"{name}, line {reader.line_num}: {error}") from None


def _check_header(name: str, columns: list[str]) -> None:
    wrong = next((column for column in columns if column not in COLUMNS), None)
    if not {"question", "answer"} <= set(columns):
        raise KnowledgeError(f"{name}, line 1: the header must name question and answer")
    if wrong is not None or len(set(columns)) < len(columns):
        what = f"unknown column {wrong!r}" if wrong is not None else "a column twice"
        raise KnowledgeError(f"{name}, line 1: {what}; there are {', '.join(COLUMNS)}")


def _make_draft(name: str, line: int, columns: list[str], row: list[str]) -> Draft:
    if len(row) != len(columns):
        raise KnowledgeError(
            f"{name}, line {line}: {len(row)} cells where the header has {len(columns)}; "
            "put quotes around text with separators"
        )
    cells = dict(zip(columns, (cell.strip() for cell in row), strict=True))
    return Draft(
        line,
        cells["question"],
        cells["answer"],
        cells.get("keywords", ""),
        cells.get("language", ""),
    )


def _find_problem(draft: Draft) -> tuple[int, str] | None:
    what = None
    if not draft.question:
        what = "the question is empty"
    elif not draft.answer:
        what = "the answer is empty"
    elif len(draft.question) > LONGEST_QUESTION:
        what = f"the question is longer than {LONGEST_QUESTION} characters"
    elif len(draft.answer) > LONGEST_ANSWER:
        what = f"the answer is longer than {LONGEST_ANSWER} characters"
    elif len(_split_keywords(draft)) > MOST_KEYWORDS:
        what = f"there are more than {MOST_KEYWORDS} keywords"
    elif any(len(keyword) > LONGEST_KEYWORD for keyword in _split_keywords(draft)):
        what = f"a keyword is longer than {LONGEST_KEYWORD} characters"
    elif draft.language.strip().lower() not in {"", *LANGUAGES}:
        what = f"the language must be one of {', '.join(LANGUAGES)}, or left out"
    return (draft.line, what) if what else None


def _find_repeats(drafts: list[Draft]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    for draft in drafts:
        first.setdefault(draft.question, draft.line)
    return [
        (draft.line, f"the same question as on line {first[draft.question]}")
        for draft in drafts
        if draft.question and first[draft.question] != draft.line
    ]


def _split_keywords(draft: Draft) -> tuple[str, ...]:
    keywords = (keyword.strip() for keyword in re.split(r"[,;]", draft.keywords))
    return tuple(keyword for keyword in keywords if keyword)


def _make_entry(draft: Draft, language: Language | None) -> Entry:
    own = draft.language.strip().lower()
    return Entry(
        draft.question,
        draft.answer,
        _split_keywords(draft),
        cast(Language, own) if own else language,
    )
