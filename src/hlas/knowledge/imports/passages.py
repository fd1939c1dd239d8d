"""Makes entries from blocks: questions with answers, and passages of what is left."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hlas.knowledge.entries import LONGEST_ANSWER, LONGEST_QUESTION, MOST_WORDINGS, Entry
from hlas.knowledge.imports import Found
from hlas.knowledge.imports.blocks import BOLD_LEVEL, Block, Heading, Pair
from hlas.knowledge.imports.questions import (
    is_labelled,
    is_question,
    is_reply,
    names_questions,
    strip_number,
    strip_reply,
)
from hlas.knowledge.language import Language, detect, fold

LONGEST_PASSAGE = 1200
# What is shorter and has no figure, such as "Read more", says nothing by itself.
SHORTEST_PASSAGE = 30
# The declared answers in which text of the page is looked for.
MOST_DECLARED = 500_000

_SENTENCE = re.compile(
    r"(?<=[.!?…])(?<!\b[A-Za-zÁ-ž]\.)(?<!\b(?:tel|Ing|Mgr|tzv|atd|str|min|max|hod)\.)\s+"
    r"(?=[\"„“(]?[A-ZÁ-Ž0-9*\[])"
)
_MARKS = re.compile(r"[*`]|\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document is from, for its entries."""

    title: str
    url: str = ""
    # The language of all entries; None: it is detected for each.
    language: Language | None = None
    # What the document says of itself.
    declared_language: str = ""


def make_found(
    blocks: Iterable[Block],
    origin: Origin,
    warnings: Iterable[str] = (),
    declared: Iterable[Pair] = (),
) -> Found:
    """What a document contains; `declared` pairs win over the same ones among its blocks."""
    maker = _Maker(origin, list(declared))
    maker.take(list(blocks))
    entries = tuple(_tag_languages(maker.entries, origin))
    return Found(entries, (*warnings, *maker.warnings), origin.title)


class _Maker:
    """Collects the text under each heading."""

    def __init__(self, origin: Origin, declared: list[Pair]) -> None:
        self.entries: list[Entry] = []
        self.warnings: list[str] = []
        self._origin = origin
        self._headings: list[Heading] = []
        # The question whose answer is being collected.
        self._question: Heading | None = None
        self._texts: list[str] = []
        self._places: dict[str, int] = {}
        # How many passages under a heading have a number.
        self._numbers: Counter[str] = Counter()
        for pair in declared:
            self._add_answer(pair)
        known = " ".join(plain(one) for pair in declared for one in (pair.question, pair.answer))
        self._declared = known[:MOST_DECLARED]

    def take(self, blocks: list[Block]) -> None:
        lenient = _is_faq(blocks, self._origin.title)
        for block in blocks:
            if isinstance(block, Heading):
                self._take_heading(block, lenient=lenient)
            elif isinstance(block, Pair):
                self._end_section()
                self._take_pair(block, lenient=lenient)
            elif not (block.is_links and self._question is None):
                self._take_text(block.text)
        self._end_section()

    def _take_heading(self, heading: Heading, *, lenient: bool) -> None:
        asked = is_question(heading.text, lenient=lenient)
        above = self._question
        if above is not None and heading.level > above.level and not asked:
            self._texts.append(f"**{heading.text}**")
            return
        self._end_section()
        if asked:
            self._question = heading
            return
        while self._headings and self._headings[-1].level >= heading.level:
            self._headings.pop()
        self._headings.append(heading)

    def _take_pair(self, pair: Pair, *, lenient: bool) -> None:
        if lenient or pair.is_sure or is_question(pair.question):
            self._add_answer(pair)
        else:
            self._add_passages(pair.question, pair.answer, shortest=0)

    def _take_text(self, text: str) -> None:
        if is_labelled(text) and "\n\n" not in text:
            self._end_section()
            first, _, rest = text.partition("\n")
            self._question = Heading(BOLD_LEVEL, strip_number(first))
            text = rest
        elif self._question is not None and not self._texts and is_reply(text):
            text = strip_reply(text)
        # Text of declared answers is not taken a second time.
        if len(text) > 15 and self._question is None and plain(text) in self._declared:
            return
        if text.strip():
            self._texts.append(strip_reply(text) if not self._texts and self._question else text)

    def _end_section(self) -> None:
        text = "\n\n".join(self._texts)
        question, self._question, self._texts = self._question, None, []
        if not text:
            return
        if question is not None:
            self._add_answer(Pair(question.text, text))
        else:
            heading = self._headings[-1].text if self._headings else self._origin.title
            self._add_passages(heading, text)

    def _add_answer(self, pair: Pair) -> None:
        if len(pair.answer) > LONGEST_ANSWER or len(pair.question) > LONGEST_QUESTION:
            self._add_passages(pair.question, pair.answer)
            return
        key = fold(pair.question).rstrip("?!. ")
        wordings = tuple(one for one in pair.wordings if one and len(one) <= LONGEST_QUESTION)
        entry = Entry(
            pair.question,
            pair.answer,
            wordings=wordings[:MOST_WORDINGS],
            url=self._origin.url,
        )
        place = self._places.get(key)
        if place is None:
            self._places[key] = len(self.entries)
            self.entries.append(entry)
            return
        # The same question again: with a longer text the first one was an excerpt.
        old = self.entries[place]
        before, now = plain(old.answer), plain(pair.answer)
        if before == now:
            # The one with links and bold text.
            self.entries[place] = replace(old, answer=max(old.answer, pair.answer, key=len))
        elif old.kind == "answer" and now.startswith(before.rstrip(".… ")):
            self.entries[place] = replace(old, answer=pair.answer)
        elif before not in now and now not in before:
            self.warnings.append(
                f"the question is there twice, the first one counts: {old.question}"
            )

    def _add_passages(self, heading: str, text: str, shortest: int = SHORTEST_PASSAGE) -> None:
        for part in split(text):
            if len(part) < shortest and not re.search(r"\d", part):
                continue
            name = self._name_passage(heading, part)
            self._places[fold(name).rstrip("?!. ")] = len(self.entries)
            self.entries.append(Entry(name, part, kind="passage", url=self._origin.url))

    def _name_passage(self, heading: str, text: str) -> str:
        """The heading, made unique with the headings above it, then with a number."""
        title = self._origin.title
        heading = shorten(heading or title or _MARKS.sub(r"\1", text), 200)
        above = [*(one.text for one in reversed(self._headings)), title]
        longer = (
            f"{shorten(one, 200)} \u2013 {heading}" for one in above if one and one != heading
        )
        for name in (heading, *longer):
            if fold(name).rstrip("?!. ") not in self._places:
                return name
        while True:
            self._numbers[heading] += 1
            name = f"{heading} ({self._numbers[heading] + 1})"
            if fold(name) not in self._places:
                return name


def split(text: str, longest: int = LONGEST_PASSAGE) -> list[str]:
    """Parts of whole paragraphs, list items or sentences, as they fit."""
    parts: list[str] = []
    for piece, separator in _cut(text, longest):
        if parts and len(parts[-1]) + len(separator) + len(piece) <= longest:
            parts[-1] += separator + piece
        else:
            parts.append(piece)
    return parts


def _cut(text: str, longest: int) -> list[tuple[str, str]]:
    """Pieces that fit, each with what separates it from the one before."""
    pieces: list[tuple[str, str]] = []
    for block in text.split("\n\n"):
        separator = "\n\n"
        if len(block) <= longest:
            pieces.append((block, separator))
            continue
        for line in block.split("\n"):
            for sentence in _SENTENCE.split(line) if len(line) > longest else [line]:
                for words in _cut_words(sentence, longest):
                    pieces.append((words, separator))
                    separator = " "
            separator = "\n"
    return [(piece, separator) for piece, separator in pieces if piece.strip()]


def _cut_words(text: str, longest: int) -> list[str]:
    parts = []
    while len(text) > longest:
        end = text.rfind(" ", 0, longest)
        end = end if end > 0 else longest
        parts.append(text[:end])
        text = text[end:].lstrip()
    return [*parts, text]


def shorten(text: str, longest: int) -> str:
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    return text[: text.rfind(" ", 0, longest) if " " in text[:longest] else longest] + "…"


def plain(text: str) -> str:
    """For comparisons: lower case, no diacritics, no Markdown."""
    return " ".join(fold(_MARKS.sub(r"\1", re.sub(r"^\s*(?:-|\d+\.) ", "", text))).split())


def _is_faq(blocks: list[Block], title: str) -> bool:
    """Whether its pairs are questions, even those without a question mark."""
    headings = [one.text for one in blocks if isinstance(one, Heading)]
    if any(names_questions(text) for text in (title, *headings)):
        return True
    pairs = [is_question(one.question) for one in blocks if isinstance(one, Pair)]
    return bool(pairs) and sum(pairs) * 2 > len(pairs)


def _tag_languages(entries: list[Entry], origin: Origin) -> Iterable[Entry]:
    """Each entry with its language, as far as its words or those of the document tell."""
    declared = origin.declared_language[:2].lower()
    whole = "\n".join(f"{one.question}\n{one.answer}" for one in entries)[:20_000]
    general = detect(whole) if declared in {"", "cs", "en"} else None
    for entry in entries:
        language = origin.language
        if language is None and general is not None:
            language = detect(f"{entry.question}\n{entry.answer}") or general
        yield replace(entry, language=language)
