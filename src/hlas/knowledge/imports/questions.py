"""Tells questions from other lines of text."""

import re

from hlas.knowledge.language import fold

# A longer line with a question mark is prose that ends in a question.
LONGEST = 250

_NUMBER = re.compile(r"(?:\(?\d{1,3}[.):]|\d{1,3}\.\d{1,3}\.?|[a-z]\))\s+|[-\u2013•*+▸►▶✓»>]\s*")
_LABEL = re.compile(
    r"(?:q|question|otazka|dotaz|ot)\s*(?:c\.\s*)?\d{0,3}\s*[:.)\-\u2013]\s*(?=\S)", re.IGNORECASE
)
_REPLY = re.compile(r"(?:a|answer|odpoved|odp)\s*\d{0,3}\s*[:.)\-\u2013]\s*(?=\S)", re.IGNORECASE)
_QUESTION_WORDS = frozenset(
    """
    jak jaky jaka jake kdy kde kdo co proc kolik ktery ktera ktere kam odkud cim mohu muzu muzeme
    lze musim musi mate mam mate poskytujete nabizite potrebuji
    how what when where who why which can do does is are will should may am
    """.split()  # noqa: SIM905  # a paragraph of words reads better than a page of quotes
)
_FAQ = re.compile(
    r"\bfaqs?\b|casto kladene|caste (?:dotazy|otazky)|nejcastejsi (?:dotazy|otazky)|"
    r"otazky a odpovedi|frequently asked|questions (?:and|&) answers|\bq ?& ?a\b"
)


def strip_number(text: str) -> str:
    """Without the number, bullet or label that lists of questions have."""
    text = text.strip()
    for pattern in (_NUMBER, _LABEL):
        # Folding keeps the length of these characters.
        found = pattern.match(fold(text[:20]))
        if found and text[found.end() :].strip():
            text = text[found.end() :].strip()
    return text


def is_labelled(text: str) -> bool:
    """Whether a line begins with `Q:` or the like."""
    return _LABEL.match(fold(text[:20])) is not None


def strip_reply(text: str) -> str:
    """An answer without its label `A:`."""
    found = _REPLY.match(fold(text[:20]))
    return text[found.end() :] if found else text


def is_reply(text: str) -> bool:
    return _REPLY.match(fold(text[:20])) is not None


def is_question(text: str, *, lenient: bool = False) -> bool:
    """Whether a line is one question. `lenient`: among questions, one without its mark."""
    if not 5 <= len(text) <= LONGEST:
        return False
    if text.rstrip("\"'“”» )").endswith("?"):
        return True
    words = fold(text).split()
    return lenient and len(words) > 2 and words[0] in _QUESTION_WORDS and text[-1] not in ".:!"


def names_questions(text: str) -> bool:
    """Whether a title announces questions with answers."""
    return _FAQ.search(fold(text)) is not None
