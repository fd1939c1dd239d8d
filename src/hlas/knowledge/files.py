"""Knowledge in files: Markdown with a heading for each question, or CSV with a header."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from hlas.knowledge.entries import (
    LONGEST_ANSWER,
    LONGEST_KEYWORD,
    LONGEST_QUESTION,
    LONGEST_URL,
    MOST_KEYWORDS,
    MOST_WORDINGS,
    Entry,
    Kind,
    KnowledgeError,
)
from hlas.knowledge.language import LANGUAGES, Language
from hlas.outbound.destinations import Destination

COLUMNS = ("question", "answer", "keywords", "language", "kind", "wordings", "url")
KINDS: tuple[Kind, ...] = get_args(Kind)
OWN_SUFFIXES = (".md", ".csv")

Format: TypeAlias = Literal["md", "csv"]

_HEADING = re.compile(r"##(?!#)\s*(.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_FIELD = re.compile(r"(keywords|language|kind|also asked|url):(.*)", re.IGNORECASE)
# After a backslash these are text of an answer.
_MARK = r"(?:##(?!#)|(?:keywords|language|kind|also asked|url):|```|~~~)"
_ESCAPED = re.compile(rf"^(\s*)\\(\\*{_MARK})", re.IGNORECASE)
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# Spreadsheets run cells that begin so, and visitors or websites may have written them. Behind an
# apostrophe they are text.
_FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry as written in a file, not checked yet."""

    line: int
    question: str
    answer: str
    keywords: tuple[str, ...]
    language: str
    kind: str
    wordings: tuple[str, ...]
    url: str


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
    fields: list[tuple[str, str]] = []
    answer: list[str] = []
    fenced = False
    for number, line in enumerate(_LINE_BREAK.split(text), start=1):
        fenced ^= _FENCE.match(line) is not None
        found = None if fenced else _HEADING.fullmatch(line.rstrip())
        if found:
            if heading:
                yield _end_section(heading, fields, answer)
            heading, fields, answer = (number, found[1]), [], []
        elif not answer and (field := _FIELD.fullmatch(line.strip())):
            fields.append((field[1].lower(), field[2].strip()))
        elif answer or line.strip():
            answer.append(_ESCAPED.sub(r"\1\2", line))
    if heading:
        yield _end_section(heading, fields, answer)


def _end_section(
    heading: tuple[int, str], fields: list[tuple[str, str]], answer: list[str]
) -> Draft:
    line, question = heading
    last = dict(fields)
    return Draft(
        line,
        question.strip(),
        "\n".join(answer).strip(),
        _split(last.get("keywords", ""), ",;"),
        last.get("language", ""),
        last.get("kind", ""),
        tuple(value for name, value in fields if name == "also asked" and value),
        last.get("url", ""),
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
    cells = dict(zip(columns, map(_restore, row), strict=True))
    return Draft(
        line,
        cells["question"],
        cells["answer"],
        _split(cells.get("keywords", ""), ",;"),
        cells.get("language", ""),
        cells.get("kind", ""),
        _split(cells.get("wordings", ""), "|"),
        cells.get("url", ""),
    )


def _disarm(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _restore(cell: str) -> str:
    """The text of a cell that may have been disarmed."""
    text = cell.strip()
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _find_problem(draft: Draft) -> tuple[int, str] | None:
    what = _find_wrong_text(draft) or _find_wrong_field(draft)
    return (draft.line, what) if what else None


def _find_wrong_text(draft: Draft) -> str:
    if not (draft.question and draft.answer):
        return f"the {'answer' if draft.question else 'question'} is empty"
    if len(draft.question) > LONGEST_QUESTION:
        return f"the question is longer than {LONGEST_QUESTION} characters"
    if len(draft.answer) > LONGEST_ANSWER:
        return f"the answer is longer than {LONGEST_ANSWER} characters"
    if len(draft.wordings) > MOST_WORDINGS:
        return f"there are more than {MOST_WORDINGS} other wordings"
    if any(len(wording) > LONGEST_QUESTION for wording in draft.wordings):
        return f"another wording is longer than {LONGEST_QUESTION} characters"
    return ""


def _find_wrong_field(draft: Draft) -> str:
    if len(draft.keywords) > MOST_KEYWORDS:
        return f"there are more than {MOST_KEYWORDS} keywords"
    if any(len(keyword) > LONGEST_KEYWORD for keyword in draft.keywords):
        return f"a keyword is longer than {LONGEST_KEYWORD} characters"
    if draft.language.lower() not in {"", *LANGUAGES}:
        return f"the language must be one of {', '.join(LANGUAGES)}, or left out"
    if draft.kind.lower() not in {"", *KINDS}:
        return f"the kind must be one of {', '.join(KINDS)}, or left out"
    if draft.url and not is_url(draft.url):
        return "the url must be an http or https address"
    return ""


def is_url(text: str) -> bool:
    """Whether visitors can be led there."""
    return len(text) <= LONGEST_URL and text.isprintable() and Destination.parse(text) is not None


def _find_repeats(drafts: list[Draft]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    for draft in drafts:
        first.setdefault(draft.question, draft.line)
    return [
        (draft.line, f"the same question as on line {first[draft.question]}")
        for draft in drafts
        if draft.question and first[draft.question] != draft.line
    ]


def _make_entry(draft: Draft, language: Language | None) -> Entry:
    own = draft.language.lower()
    return Entry(
        draft.question,
        draft.answer,
        draft.keywords,
        cast(Language, own) if own else language,
        cast(Kind, draft.kind.lower() or "answer"),
        draft.wordings,
        draft.url,
    )


def _split(text: str, separators: str) -> tuple[str, ...]:
    """The parts of a list; a separator after a backslash belongs to its part."""
    kept = re.escape(separators + "\\")
    parts = re.findall(rf"(?:\\[{kept}]|[^{re.escape(separators)}])+", text)
    cleaned = (re.sub(rf"\\([{kept}])", r"\1", part).strip() for part in parts)
    return tuple(part for part in cleaned if part)


def _join(parts: Iterable[str], separators: str, between: str) -> str:
    kept = re.escape(separators + "\\")
    return between.join(re.sub(rf"([{kept}])", r"\\\1", part) for part in parts)


def export(entries: Iterable[Entry], form: Format) -> str:
    """A file that imports back to the same entries."""
    return _export_csv(entries) if form == "csv" else _export_markdown(entries)


def _export_csv(entries: Iterable[Entry]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in entries:
        cells = (
            one.question,
            one.answer,
            _join(one.keywords, ",;", ", "),
            one.language or "",
            one.kind,
            _join(one.wordings, "|", " | "),
            one.url,
        )
        writer.writerow(map(_disarm, cells))
    return text.getvalue()


def _export_markdown(entries: Iterable[Entry]) -> str:
    return "\n".join(map(_write_section, entries))


def _write_section(entry: Entry) -> str:
    fields = [
        ("Kind", entry.kind if entry.kind != "answer" else ""),
        ("Language", entry.language or ""),
        ("Keywords", _join(entry.keywords, ",;", ", ")),
        *(("Also asked", wording) for wording in entry.wordings),
        ("Url", entry.url),
    ]
    lines = [f"{name}: {value}" for name, value in fields if value]
    heading = f"## {' '.join(entry.question.split())}"
    return "\n".join([heading, *lines, "", *_escape(entry.answer), ""])


def _escape(answer: str) -> list[str]:
    """The lines of an answer, where none is taken for a question, a field or an open fence."""
    lines = _LINE_BREAK.split(answer)
    has_open_fence = sum(_FENCE.match(line) is not None for line in lines) % 2 == 1
    return [
        re.sub(r"^(\s*)", r"\1\\", line)
        if _ESCAPED.match(line)
        or _HEADING.fullmatch(line.rstrip())
        or (number == 0 and _FIELD.fullmatch(line.strip()))
        or (has_open_fence and _FENCE.match(line))
        else line
        for number, line in enumerate(lines)
    ]
