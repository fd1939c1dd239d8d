"""The words of a text, and the stems that their forms share, in Czech and English."""

import re
from dataclasses import dataclass
from functools import lru_cache

from hlas.knowledge.language import (
    CZECH,
    ENGLISH,
    LONGEST_WORD,
    MOST_SEARCHED_CHARACTERS,
    STOP_WORDS,
    Language,
    detect,
    fold,
)

_WORD = re.compile(r"[^\W_]+")
# Wi-Fi, e-mail, e-shop: one word.
_HYPHEN = re.compile(r"\b([^\W_]{1,2})-(?=[^\W_])")
_NOT = re.compile(r"n[\u2019']t\b")
_APOSTROPHE = re.compile(r"[\u2019'](?:s|re|ve|ll|d|m)\b")

_VOWELS = frozenset("aeiouy")

# Endings of folded Czech words, longest first.
_CZECH_ENDINGS = tuple(
    sorted(
        """
        ovavat ovavam ovavame ovavate ovavaji ovanych ovaneho ovanemu ovanym ovanou ovani ovany
        ovana ovane ovano ovan ovat oval ovala ovali ovalo ovaly ujeme ujete ujes ujou ujte uji uju
        uje uj ovych oveho ovemu ovymi ovym ovou ovi ovy ova ove
        atech atum ata aty ete eti etem ech ich ych ach eho emu iho imu ymi imi emi ami ama
        ejsi ejsich ejsiho ejsim eji ejich ejte ejme
        enych eneho enemu enym enou enymi eni enim enich eny ena ene eno en
        anych aneho anemu anym anou anymi ani anim anich any ana ane ano an
        avani avat avam avas ava avame avate avaji aval avala avali avalo
        ivani ivat ivam ivas iva ivame ivate ivaji ival ivala ivali ivalo
        nout nul nula nuli nulo nuti
        ame ate aji ime ite eji im is it at et am as al ala ali alo aly il ila ili ilo ily el ela
        eli elo ely yt ym um em ou us a e i o u y
        """.split(),  # noqa: SIM905  # a paragraph of endings reads better than a page of quotes
        key=lambda ending: -len(ending),
    )
)
_CZECH_SUFFIXES = ("ostn", "ost", "nick", "nic", "teln", "itel", "ack", "ick", "ovac", "ac", "ck")
_LEAST_CZECH_STEM = 3


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: as written in lower case, folded, and its stem."""

    form: str
    folded: str
    stem: str
    # It carries no meaning of its own.
    is_stop: bool


def split_words(text: str, language: Language | None, most: int) -> list[Word]:
    """The words of a text in their order, at most so many; the language is a guess."""
    return split_spoken(text, detect(text[:MOST_SEARCHED_CHARACTERS]) or language, most)


def split_spoken(text: str, language: Language | None, most: int) -> list[Word]:
    """The same for a text of which the language is known."""
    shortened = text[:MOST_SEARCHED_CHARACTERS].lower()
    if "-" in shortened:
        shortened = _HYPHEN.sub(r"\1", shortened)
    if "'" in shortened or "\u2019" in shortened:
        shortened = _APOSTROPHE.sub("", _NOT.sub(" not", shortened))
    return [make_word(form[:LONGEST_WORD], language) for form in _WORD.findall(shortened)[:most]]


@lru_cache(maxsize=8192)
def make_word(form: str, language: Language | None) -> Word:
    folded = fold(form)
    stop_words = {"cs": CZECH, "en": ENGLISH, None: STOP_WORDS}[language]
    is_stop = folded in stop_words or (len(folded) == 1 and not folded.isdigit())
    return Word(form, folded, stem(folded, language), is_stop)


def stem(folded: str, language: Language | None) -> str:
    if folded.isdigit() or not folded.isascii():
        return folded
    return stem_english(folded) if language == "en" else stem_czech(folded)


def stem_czech(folded: str) -> str:
    """Cut the endings of declension, conjugation and common derivation."""
    word = folded[3:] if folded.startswith("nej") and len(folded) > 7 else folded
    for ending in _CZECH_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_CZECH_STEM:
            word = word[: -len(ending)]
            break
    for suffix in _CZECH_SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _LEAST_CZECH_STEM + 1:
            word = word[: -len(suffix)]
            break
    return _alternate(word)


def _alternate(word: str) -> str:
    """Undo what changes inside a Czech stem: a fleeting e, and the last consonant."""
    if len(word) > 3 and word[-2] == "e" and word[-1] in "ckltnr" and word[-3] not in _VOWELS:
        word = word[:-2] + word[-1]
    last = {"k": "c", "h": "z"}.get(word[-1]) if len(word) > 3 else None
    if last is not None and not word.endswith("ch"):
        word = word[:-1] + last
    return word


_IRREGULAR = {
    "paid": "pay", "bought": "buy", "sent": "send", "lost": "lose", "broke": "break",
    "broken": "break", "forgot": "forget", "forgotten": "forget", "stole": "steal",
    "stolen": "steal", "came": "come", "took": "take", "taken": "take", "made": "make",
    "gave": "give", "given": "give", "left": "leave", "kept": "keep", "sold": "sell",
    "found": "find", "spent": "spend", "children": "child", "kids": "kid", "people": "person",
    "men": "man", "women": "woman", "feet": "foot", "bring": "bring", "brought": "bring",
    "spoke": "speak", "wrote": "write", "written": "write", "drove": "drive", "ate": "eat",
    "eaten": "eat", "chose": "choose", "chosen": "choose", "withdrew": "withdraw", "thing": "thing",
    "withdrawn": "withdraw", "said": "say", "understood": "understand", "worn": "wear",
    "wore": "wear", "hidden": "hide", "slept": "sleep", "met": "meet", "held": "hold",
    "began": "begin", "begun": "begin", "caught": "catch", "taught": "teach", "thought": "think",
    "wives": "wife", "knives": "knife", "lives": "live", "leaves": "leave", "buses": "bus",
}  # fmt: skip
_ENGLISH_SUFFIXES = (
    ("ability", ""), ("ibility", ""), ("ship", ""), ("ery", ""),
    ("ization", "iz"), ("isation", "iz"), ("ational", ""), ("ations", ""), ("ation", ""),
    ("ition", ""), ("ement", ""), ("ment", ""), ("ness", ""), ("able", ""), ("ible", ""),
    ("ance", ""), ("ence", ""), ("ful", ""), ("less", ""), ("ion", ""), ("ity", ""), ("ive", ""),
    ("al", ""), ("er", ""), ("or", ""), ("ate", ""), ("ly", ""), ("ise", "iz"), ("ize", "iz"),
)  # fmt: skip
_LEAST_ENGLISH_STEM = 4


@lru_cache(maxsize=8192)
def stem_english(folded: str) -> str:
    """Cut the endings of inflection and common derivation."""
    word = _IRREGULAR.get(folded) or _cut_inflection(folded)
    for suffix, instead in _ENGLISH_SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _LEAST_ENGLISH_STEM:
            word = word[: -len(suffix)] + instead
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeious":
        word = word[:-1]
    if len(word) > 2 and word[-1] == "y" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    return word


def _cut_inflection(word: str) -> str:
    if len(word) > 3 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("xes", "ches", "shes", "sses", "zes")):
        word = word[:-2]
    elif len(word) > 3 and word[-1] == "s" and word[-2] not in "su":
        word = word[:-1]
    for ending in ("ied", "ing", "ed"):
        if word.endswith(ending) and _has_vowel(word[: -len(ending)]):
            return word[:-3] + "y" if ending == "ied" else word[: -len(ending)]
    return word


def _has_vowel(word: str) -> bool:
    return len(word) > 2 and not _VOWELS.isdisjoint(word)
