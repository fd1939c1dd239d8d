"""Knowledge files: what is parsed, and how errors are reported."""

import csv
from pathlib import Path

import pytest

from hlas.demo import tenant as demo
from hlas.knowledge.entries import Entry, KnowledgeError
from hlas.knowledge.files import export, parse, read

MARKDOWN = """# Our questions
An introduction for people.

## Where are you?
Keywords: address, map ; directions
Language: EN

On the **square**.

- ground floor
- first floor

##Kdy máte otevřeno?

Denně.
```
## not a question
```
### Sobota
Zavřeno.
"""


def test_markdown() -> None:
    """A `##` heading is a question; fields may follow; the rest is its answer."""
    where, when = parse("faq.md", MARKDOWN.encode())
    assert where == Entry(
        "Where are you?",
        "On the **square**.\n\n- ground floor\n- first floor",
        ("address", "map", "directions"),
        "en",
    )
    assert when.question == "Kdy máte otevřeno?"
    assert when.answer.startswith("Denně.\n```\n## not a question")
    assert when.answer.endswith("### Sobota\nZavřeno.")
    assert when.language is None


def test_language_of_the_file() -> None:
    """The language given for a file applies to entries without their own."""
    assert [entry.language for entry in parse("faq.md", MARKDOWN.encode(), "cs")] == ["en", "cs"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv(separator: str) -> None:
    """Commas, semicolons, tabs separate; quoted answers may have lines; empty rows are skipped."""
    text = (
        f"Answer{separator}Question{separator}keywords\r\n"
        f'"one{separator}\r\ntwo"{separator}what?{separator}"a, b"\r\n\r\n'
    )
    assert parse("faq.CSV", text.encode("utf-8-sig")) == [
        Entry("what?", f"one{separator}\r\ntwo", ("a", "b"))
    ]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.md", "# only a title\n\ntext\n", "a.md: no entries; it has no `## question` lines"),
        ("a.csv", "question,answer\n", "a.csv: no entries; it has no rows under its header"),
        ("a.md", "## q\n\n## r\nanswer\n", "a.md, line 1: the answer is empty"),
        ("a.md", "\n## \nanswer\n", "a.md, line 2: the question is empty"),
        ("a.md", "## q\na\n## r\nb\n## q\nc\n", "a.md, line 5: the same question as on line 1"),
        (
            "a.md",
            "## q\nLanguage: klingon\n\na\n",
            "a.md, line 1: the language must be one of cs, en, or left out",
        ),
        (
            "a.md",
            f"## {'q' * 501}\na\n## r\n",
            "a.md, line 1: the question is longer than 500 characters (and 1 more)",
        ),
        (
            "a.md",
            f"## q\n{'a' * 8001}\n",
            "a.md, line 1: the answer is longer than 8000 characters",
        ),
        (
            "a.md",
            f"## q\nKeywords: {'k,' * 51}\n\na\n",
            "a.md, line 1: there are more than 50 keywords",
        ),
        (
            "a.md",
            f"## q\nKeywords: {'k' * 81}\n\na\n",
            "a.md, line 1: a keyword is longer than 80 characters",
        ),
        (
            "a.csv",
            "otazka,answer\na,b\n",
            "a.csv, line 1: the header must name question and answer",
        ),
        (
            "a.csv",
            "question,answer,tags\na,b,c\n",
            (
                "a.csv, line 1: unknown column 'tags'; there are question, answer, keywords, "
                "language, kind, wordings, url"
            ),
        ),
        (
            "a.csv",
            "question,answer,answer\na,b,c\n",
            (
                "a.csv, line 1: a column twice; there are question, answer, keywords, "
                "language, kind, wordings, url"
            ),
        ),
        ("a.csv", 'question,answer\n"a\nb",c\nd,\n', "a.csv, line 4: the answer is empty"),
        (
            "a.csv",
            "question,answer\na,b\nc,d,e\n",
            "a.csv, line 3: 3 cells where the header has 2; put quotes around text with separators",
        ),
        ("a.csv", 'question,answer\na,"b\n', "a.csv, line 2: unexpected end of data"),
        ("a.md", "## q\na\0b\n", "a.md, line 2: a NUL character; is this a text file?"),
    ],
)
def test_errors_name_the_line(name: str, text: str, told: str) -> None:
    """An error is one line with the file and the line number where it starts."""
    with pytest.raises(KnowledgeError) as error:
        parse(name, text.encode())
    assert str(error.value) == told


def test_not_utf8() -> None:
    """A file in another encoding is refused with the line that shows it."""
    with pytest.raises(KnowledgeError, match=r"a\.csv, line 2: not UTF-8"):
        parse("a.csv", "question,answer\nkdy,večer".encode("cp1250"))


def test_missing_file(tmp_path: Path) -> None:
    """A file that cannot be read is one line, too."""
    with pytest.raises(KnowledgeError, match="No such file"):
        read(tmp_path / "none.md")


def test_demo_entries() -> None:
    """The demo tenant has a dozen entries, each in both languages."""
    languages = [entry.language for entry in demo.read_entries()]
    assert languages.count("cs") == languages.count("en") == 12
    assert all(entry.keywords for entry in demo.read_entries())


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "'=", "\uff1d"])
def test_formulas(first: str) -> None:
    """A spreadsheet that opens an export runs nothing that others have written; it imports back."""
    text = f'{first}HYPERLINK("https://evil.example")'
    entry = Entry(text, text, (text[:20],), wordings=(text,))
    exported = export([entry], "csv")
    header, *rows = csv.reader(exported.splitlines())
    assert all(cell[0] not in "=+-@\uff1d" for row in rows for cell in row if cell)
    assert parse("a.csv", exported.encode()) == [entry]
    assert len(header) == 7
