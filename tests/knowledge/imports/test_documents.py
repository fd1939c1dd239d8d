"""What is found in documents of the shapes that people have, and in hostile ones."""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from documents import Line, assemble, make_docx, make_pdf, paragraph, table
from hlas.knowledge.entries import Entry, KnowledgeError
from hlas.knowledge.imports.documents import LARGEST_DOCUMENT, DocumentReader, read_document
from hlas.knowledge.imports.reader import LARGEST_MEMORY, _answer

Read: TypeAlias = Callable[..., list[tuple[str, str, str]]]

FAQ = """<!doctype html><html lang="cs"><head><title>Časté dotazy | E-shop U Nováků</title>
<script type="application/ld+json">{"@context": "https://schema.org", "@type": "FAQPage",
"mainEntity": [{"@type": "Question", "name": "Kolik stojí doprava?", "acceptedAnswer": {
"@type": "Answer", "text": "<p>Stojí <b>99&nbsp;Kč</b>, jindy je <a href='/d'>zdarma</a>.</p>"}}]}
</script></head>
<body><div class="cookie-bar">Používáme cookies. <button>Souhlasím</button></div>
<nav><a href="/">Domů</a> <a href="/kontakt">Kontakt</a></nav>
<main><h1>Časté dotazy</h1>
<p>Nenašli jste odpověď? Napište nám na info@novak.cz a ozveme se do 24 hodin.</p>
<h2>Doprava a platba</h2>
<h3>Kolik stojí doprava?</h3><p>Stojí 99 Kč, jindy je zdarma.</p>
<h3>Kam zboží doručujete?</h3><p>Po celé České republice.</p><p>Na Slovensko také.</p>
<div class="accordion-item"><h3><button class="accordion-button" aria-controls="c1"
aria-expanded="false">Mohu platit kartou?</button></h3><div id="c1" class="collapse">
<p>Ano, přijímáme <strong>Visa</strong>:</p><ul><li>online</li><li>na prodejně</li></ul></div></div>
<details><summary>Jak vrátím zboží?</summary><p>Do 14 dnů, viz <a href="v.pdf">postup</a>.</p>
</details>
<dl><dt>Kde vás najdu?</dt><dd>Na náměstí 5, Brno.</dd>
<dt>Máte parkoviště?</dt><dt>Kde mohu zaparkovat?</dt><dd>Ano, ve dvoře.</dd></dl>
<h2>O nás</h2><p>Jsme rodinná firma z roku 1992. Nábytek vyrábíme sami v Brně.</p>
<table><tr><th>Den</th><th>Od</th><th>Do</th></tr><tr><td>Sobota</td><td>9</td><td>12</td></tr>
</table></main><footer>© 2026 U Nováků</footer></body></html>"""

COLUMNS = (
    (
        *("Jak dlouho trvá dodání?", "Zboží odesíláme do dvou", "pracovních dnů.", ""),
        *("Mohu zboží vyzvednout?", "Ano, na prodejně v Brně", "každý den od 9 do 17."),
    ),
    (
        *("Máte dárkové poukazy?", "Ano, v hodnotě 500 Kč.", "Platí jeden rok.", ""),
        *("Jak reklamovat?", "Přineste zboží s účtenkou", "nebo ho pošlete na adresu."),
    ),
)


@pytest.fixture(scope="module")
def reader() -> Iterator[DocumentReader]:
    with DocumentReader(seconds=60) as opened:
        yield opened


@pytest.fixture(scope="module")
def read(reader: DocumentReader) -> Read:
    """The kind, question and answer of what is found in a file."""

    def read(name: str, data: bytes, content_type: str = "") -> list[tuple[str, str, str]]:
        found = reader.read(name, data, content_type, "", None).found
        return [(one.kind, one.question, one.answer) for one in found.entries]

    return read


def make_columns() -> bytes:
    lines = [Line(60, 800, "Příručka pro zákazníky", 20, bold=True), Line(290, 30, "1")]
    for x, texts in zip((60, 320), COLUMNS, strict=True):
        lines += [
            Line(x, 760 - 14 * row, text, 10, bold=text.endswith("?"))
            for row, text in enumerate(texts)
            if text
        ]
    # As programs for layout draw them: in no useful order.
    return make_pdf([sorted(lines, key=lambda line: (-line.y, -line.x))])


def test_page_of_questions() -> None:
    """JSON-LD, headings, accordions, details and lists of definitions are pairs; prose is passages.

    Menus, footers and cookie bars are left out, and a question that is there twice is taken once.
    """
    found = read_document("faq.html", FAQ.encode(), url="https://novak.cz/faq")
    assert found.warnings == ()
    assert found.title == "Časté dotazy"
    assert {(one.url, one.language) for one in found.entries} == {("https://novak.cz/faq", "cs")}
    assert [(one.kind, one.question, one.answer, one.wordings) for one in found.entries] == [
        *(
            ("answer", question, answer, ())
            for question, answer in (
                (
                    "Kolik stojí doprava?",
                    "Stojí **99 Kč**, jindy je [zdarma](https://novak.cz/d).",
                ),
            )
        ),
        (
            "passage",
            "Časté dotazy",
            "Nenašli jste odpověď? Napište nám na info@novak.cz a ozveme se do 24 hodin.",
            (),
        ),
        (
            "answer",
            "Kam zboží doručujete?",
            "Po celé České republice.\n\nNa Slovensko také.",
            (),
        ),
        (
            "answer",
            "Mohu platit kartou?",
            "Ano, přijímáme **Visa**:\n\n- online\n- na prodejně",
            (),
        ),
        (
            "answer",
            "Jak vrátím zboží?",
            "Do 14 dnů, viz [postup](https://novak.cz/v.pdf).",
            (),
        ),
        ("answer", "Kde vás najdu?", "Na náměstí 5, Brno.", ()),
        ("answer", "Máte parkoviště?", "Ano, ve dvoře.", ("Kde mohu zaparkovat?",)),
        (
            "passage",
            "O nás",
            (
                "Jsme rodinná firma z roku 1992. Nábytek vyrábíme sami v Brně.\n\n"
                "- Sobota: Od 9, Do 12"
            ),
            (),
        ),
    ]


def test_pdf_with_columns(read: Read) -> None:
    """Columns are read one after the other, lines are joined, the page number is left out."""
    assert read("příručka.pdf", make_columns()) == [
        ("answer", "Jak dlouho trvá dodání?", "Zboží odesíláme do dvou pracovních dnů."),
        ("answer", "Mohu zboží vyzvednout?", "Ano, na prodejně v Brně každý den od 9 do 17."),
        ("answer", "Máte dárkové poukazy?", "Ano, v hodnotě 500 Kč. Platí jeden rok."),
        (
            "answer",
            "Jak reklamovat?",
            "Přineste zboží s účtenkou nebo ho pošlete na adresu.",
        ),
    ]


def test_running_heads(read: Read) -> None:
    """Headers and footers, which most pages of a PDF repeat, are left out."""
    body = ["Prodejna v Brně má otevřeno denně.", "V Praze jen o víkendu.", "V Plzni nikdy."]
    pages = [
        [Line(60, 810, "Novák s.r.o."), Line(60, 500, text), Line(500, 20, f"Strana {number} z 3")]
        for number, text in enumerate(body, start=1)
    ]
    [(kind, name, text)] = read("otevreno.pdf", make_pdf(pages))
    assert (kind, name, " ".join(text.split())) == ("passage", "otevreno", " ".join(body))


def test_word_with_tables(read: Read) -> None:
    """Tables of questions are pairs, other tables are text, headings may have Czech styles."""
    document = make_docx(
        paragraph("Ceník služeb", "Nzev"),
        paragraph("Naše ceny platí od 1. ledna a zahrnují DPH."),
        table(["Služba", "Cena"], ["Montáž", "500 Kč"], ["Odvoz nábytku", "300 Kč"]),
        paragraph("Časté otázky", "Nadpis1"),
        table(["Otázka", "Odpověď"], ["Kolik stojí montáž?", "500 Kč."], ["Co víkend", "Ano."]),
        paragraph("Mohu službu zrušit?", "Nadpis2"),
        paragraph("Ano, den předem."),
        paragraph("Před montáží:", ""),
        paragraph("vyklidit pokoj", listed=True),
        paragraph("připravit klíče", listed=True),
    )
    assert read("cenik.docx", document) == [
        (
            "passage",
            "Ceník služeb",
            (
                "Naše ceny platí od 1. ledna a zahrnují DPH.\n\n"
                "- Služba: Cena\n- Montáž: 500 Kč\n- Odvoz nábytku: 300 Kč"
            ),
        ),
        ("answer", "Kolik stojí montáž?", "500 Kč."),
        ("answer", "Co víkend", "Ano."),
        (
            "answer",
            "Mohu službu zrušit?",
            "Ano, den předem.\n\nPřed montáží:\n\n- vyklidit pokoj\n- připravit klíče",
        ),
    ]


def test_text_and_own_formats(read: Read) -> None:
    """Text has questions on lines of their own; Markdown and CSV are read as everywhere else."""
    text = "Kdy máte otevřeno?\nDenně od 8 do 18.\n\nQ: Where are you?\nA: On the square.\n"
    assert read("otazky.txt", text.encode("cp1250")) == [
        ("answer", "Kdy máte otevřeno?", "Denně od 8 do 18."),
        ("answer", "Where are you?", "On the square."),
    ]
    [entry] = read_document("a.md", b"## Where?\nKeywords: map\n\nHere.").entries
    assert entry == Entry("Where?", "Here.", ("map",))
    [entry] = read_document("a.csv", b"question;answer\nWhere?;Here.\n").entries
    assert entry == Entry("Where?", "Here.")


@pytest.mark.parametrize(
    ("encoding", "content_type", "meta"),
    [
        ("utf-8", "text/html; charset=iso-8859-1", "windows-1250"),
        ("cp1250", "text/html; charset=utf-8", ""),
        ("cp1250", "text/html", "iso-8859-2"),
        ("cp1250", "text/html; charset=windows-1250", ""),
        ("iso-8859-2", "text/html", "iso-8859-2"),
        ("utf-16", "text/html; charset=utf-8", "utf-8"),
        ("cp1250", "text/html; charset=zip", "no such encoding"),
    ],
)
def test_lying_encodings(read: Read, encoding: str, content_type: str, meta: str) -> None:
    """Czech is read right, whatever encoding the server or the page declares."""
    page = (
        f'<!doctype html><html><head><meta charset="{meta}"><title>Dotazy</title></head><body>'
        "<h2>Jak žluťoučký kůň šeptá?</h2><p>Úpěl ďábelské ódy, příliš často.</p></body></html>"
    )
    assert read("dotazy.html", page.encode(encoding), content_type) == [
        ("answer", "Jak žluťoučký kůň šeptá?", "Úpěl ďábelské ódy, příliš často.")
    ]


def zip_of(**parts: str | bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name.replace("__", "/").replace("_xml", ".xml"), content)
    return out.getvalue()


def make_entities(encoding: str) -> bytes:
    """Nine levels of entities: a few hundred bytes that would be 10 GB."""
    levels = "".join(f'<!ENTITY e{one} "{f"&e{one - 1};" * 10}">' for one in range(1, 10))
    return (
        f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY e0 "aaaaaaaaaa">'
        f"{levels}]><x>&e9;</x>"
    ).encode(encoding)


def make_stream(packed: bytes, filters: bytes) -> bytes:
    """A PDF of one page with this content."""
    return assemble(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
            b"<< /Filter %s /Length %d >>\nstream\n%s\nendstream" % (filters, len(packed), packed),
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 3 0 R >>",
        ]
    )


PDF = make_pdf([[Line(60, 800, "Jak se máte?"), Line(60, 780, "Děkujeme, dobře.")]])
MANY_PAGES = assemble(
    [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 600 /Kids [%s] >>" % b" ".join([b"3 0 R"] * 600),
        b"<< /Type /Page /Parent 2 0 R >>",
    ]
)
DAMAGED_PDF = "not a readable PDF file; it may be damaged"
DAMAGED_WORD = "not a readable Word file; it may be damaged"
HOSTILE = {
    "picture.html": (b"\x89PNG\r\n\x1a\n\0\0", "not a text file"),
    "old.doc": (b"\xd0\xcf\x11\xe0", "an old Word format; save it as .docx"),
    "program.exe": (
        b"MZ",
        "unknown type of file; use .html, .pdf, .docx, .md, .csv or .txt",
    ),
    "large.pdf": (b"%PDF-" + b" " * LARGEST_DOCUMENT, "larger than 20 MB"),
    "text.pdf": (b"hello", "not a PDF file"),
    "half.pdf": (PDF[: len(PDF) // 2], DAMAGED_PDF),
    "circle.pdf": (PDF.replace(b"/Kids [6 0 R]", b"/Kids [2 0 R 2 0 R]"), DAMAGED_PDF),
    "table.pdf": (
        (
            b"%PDF-1.4\nxref\n0 4000000000\n0000000000 65535 f \n"
            b"trailer << /Size 4000000000 /Root 1 0 R >>\nstartxref\n9\n%%EOF\n"
        ),
        DAMAGED_PDF,
    ),
    "pages.pdf": (MANY_PAGES, "600 pages; at most 500 can be imported"),
    "bomb.pdf": (
        make_stream(zlib.compress(b"(" + b"a" * 100_000_000), b"/FlateDecode"),
        "no text, only images; save it with text recognition (OCR)",
    ),
    "scan.pdf": (make_pdf([[]]), "no text, only images; save it with text recognition (OCR)"),
    "table.docx": (zip_of(xl__workbook_xml="x"), "not a Word document"),
    "half.docx": (make_docx(paragraph("x"))[:80], DAMAGED_WORD),
    "bomb.docx": (zip_of(word__document_xml=" " * 60_000_000), DAMAGED_WORD),
    "entities.docx": (zip_of(word__document_xml=make_entities("utf-8")), DAMAGED_WORD),
    "wide.docx": (zip_of(word__document_xml=make_entities("utf-16")), DAMAGED_WORD),
    "none.md": (b"prose", "no entries; it has no `## question` lines"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(reader: DocumentReader, name: str) -> None:
    """What cannot be read, or would need endless memory, is an error of one line."""
    data, reason = HOSTILE[name]
    with pytest.raises(KnowledgeError) as caught:
        reader.read(name, data, "", "", None)
    assert str(caught.value) == f"{name}: {reason}"


def test_lying_counts(read: Read) -> None:
    """A PDF that claims a billion pages or objects is read as far as it goes."""
    for lie in (
        PDF.replace(b"/Count 1", b"/Count 999999999"),
        PDF.replace(b"/Size", b"/Size 9999999999 /Lie"),
    ):
        assert lie != PDF
        assert read("lie.pdf", lie) == [("answer", "Jak se máte?", "Děkujeme, dobře.")]


def test_nothing_to_import() -> None:
    """A document without any text is an error, too."""
    with pytest.raises(
        KnowledgeError,
        match=r"^empty.html: nothing to import: no questions and no text were found$",
    ):
        read_document("empty.html", b"<html></html>")


def test_time_and_the_next_document() -> None:
    """A document that keeps the parser busy is given up; the next one is read."""
    with DocumentReader(seconds=0.5) as reader:
        for name, data in (
            ("deep.html", b"<div>" * 200_000),
            ("long.pdf", make_stream(zlib.compress(b"0 0 m\n" * 3_000_000), b"/FlateDecode")),
        ):
            with pytest.raises(KnowledgeError, match=r"not read within 0.5 s; it may be damaged$"):
                reader.read(name, data, "", "", None)
        reader._seconds = 60
        assert reader.read("faq.html", FAQ.encode(), "", "", None).found.title == "Časté dotazy"


def test_bounds_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that parses has a limit of memory, writes no files, and knows no secrets."""
    monkeypatch.setenv("SECRETS_KEY", "a secret")
    with DocumentReader() as reader:
        reader.read("a.html", FAQ.encode(), "", "", None)
        assert reader._process is not None
        process = Path(f"/proc/{reader._process.pid}")
        assert (process / "environ").read_bytes() == b""
        limits = (process / "limits").read_text()
    for name, most in (
        ("Max address space", LARGEST_MEMORY),
        ("Max file size", 0),
        ("Max core file size", 0),
    ):
        assert re.search(rf"^{name} +{most} +{most} +bytes", limits, re.MULTILINE), name


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that needs more memory than there is is an error of one line."""

    def use_up(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("hlas.knowledge.imports.reader._read", use_up)
    assert _answer({"name": "a.html"}, b"") == {
        "error": "needs too much memory to be read",
        "is_exhausted": True,
    }


def test_a_closed_reader_starts_no_process() -> None:
    """A crawl that is cancelled at the start of a document leaves no process behind."""
    reader = DocumentReader()
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.read("a.html", b"<!doctype html><p>Text.", "", "", None)
