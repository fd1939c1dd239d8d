"""Our Czech-English word list and English synonyms: what different words have in common."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from hlas.knowledge.language import ENGLISH, Language, detect, fold
from hlas.knowledge.ranking.words import Word, split_words, stem_czech, stem_english

# Weights of a concept, by how directly a word stands for it.
FIRST_GLOSS = 1.0
LATER_GLOSS = 0.8
SYNONYM = 0.8
PART_OF_GLOSS = 0.5
LONGEST_PHRASE = 4
MOST_TRANSLATED_WORDS = 250

Concepts = dict[str, float]


class Lexicon:
    """Concepts are stems of English words, so that Czech and English words share them."""

    def __init__(self, czech: str, english: str) -> None:
        # What a lemma means: English glosses, the usual one first.
        self._exact: dict[str, tuple[str, ...]] = {}
        self._folded: dict[str, list[str]] = defaultdict(list)
        self._stems: dict[str, list[str]] = defaultdict(list)
        self._phrases: dict[str, str] = {}
        self._synonyms: dict[str, list[str]] = defaultdict(list)
        for line in czech.splitlines():
            self._add_czech(line)
        for line in english.splitlines():
            self._add_english(line)
        self._cached: dict[tuple[str, bool], Concepts] = {}

    def _add_czech(self, line: str) -> None:
        lemmas, _, right = line.partition("\t")
        glosses = tuple(right.split(", "))
        for lemma in lemmas.split(", "):
            self._exact[lemma] = glosses
            folded = fold(lemma)
            if " " in lemma:
                self._phrases[" ".join(map(stem_czech, folded.split()))] = lemma
            else:
                self._folded[folded].append(lemma)
                self._stems[stem_czech(folded)].append(lemma)

    def _add_english(self, line: str) -> None:
        head, _, right = line.partition("\t")
        concept = make_concept(head)
        for synonym in right.split(", "):
            stems = " ".join(map(stem_english, fold(synonym).replace("-", " ").split()))
            self._synonyms[stems].append(concept)

    def find_lemmas(self, word: Word) -> list[str]:
        """The Czech lemmas that a word may be a form of: as written, folded, by its stem."""
        if word.form in self._exact:
            return [word.form]
        if found := self._folded.get(word.folded):
            return found[:3]
        found = self._stems.get(word.stem) or []
        # Several lemmas share the stem: take the most similar ones.
        likeness = {lemma: _count_common(fold(lemma), word.folded) for lemma in found}
        best = max(likeness.values(), default=0)
        return [lemma for lemma in found if likeness[lemma] == best][:3]

    @property
    def folded_lemmas(self) -> Collection[str]:
        return self._folded

    def knows(self, word: Word, language: Language | None) -> bool:
        """Whether the word is in one of the lists."""
        is_english = language == "en"
        return word.stem in self._synonyms if is_english else bool(self.find_lemmas(word))

    def list_concepts(self, words: Sequence[Word], language: Language | None) -> list[Concepts]:
        """What each of the words stands for, alone or as a part of a phrase."""
        is_english = language == "en"
        found = [dict(self._find_concepts(word, is_english=is_english)) for word in words]
        phrases = self._synonyms if is_english else self._phrases
        for start, length, key in _list_runs(words):
            if key in phrases:
                concepts = self._explain_phrase(key, is_english=is_english)
                for place in range(start, start + length):
                    found[place] |= concepts
        return found

    def _explain_phrase(self, key: str, *, is_english: bool) -> Concepts:
        if is_english:
            return dict.fromkeys(self._synonyms[key], SYNONYM)
        return weigh_glosses(self._exact[self._phrases[key]])

    def _find_concepts(self, word: Word, *, is_english: bool) -> Concepts:
        known = self._cached.get((word.form, is_english))
        if known is not None:
            return known
        concepts: Concepts = {}
        if is_english:
            for head in self._synonyms.get(word.stem, ()):
                concepts[head] = SYNONYM
            concepts[word.stem] = FIRST_GLOSS
        else:
            for lemma in self.find_lemmas(word):
                for concept, weight in weigh_glosses(self._exact[lemma]).items():
                    concepts[concept] = max(weight, concepts.get(concept, 0.0))
            if not concepts:
                concepts[stem_english(word.folded)] = FIRST_GLOSS
        if len(self._cached) > 20_000:
            self._cached.clear()
        self._cached[word.form, is_english] = concepts
        return concepts

    def translate(self, words: Sequence[Word]) -> Iterator[str]:
        """The usual English word or phrase for each Czech word; unknown words stay."""
        place = 0
        runs = {(start, length): key for start, length, key in _list_runs(words)}
        while place < len(words):
            for length in range(LONGEST_PHRASE, 1, -1):
                lemma = self._phrases.get(runs.get((place, length), ""))
                if lemma:
                    yield self._exact[lemma][0]
                    place += length
                    break
            else:
                yield self._translate_word(words[place])
                place += 1

    def _translate_word(self, word: Word) -> str:
        if word.is_stop:
            return FUNCTION_WORDS.get(word.folded, "")
        for lemma in self.find_lemmas(word):
            return self._exact[lemma][0]
        return word.folded


def _list_runs(words: Sequence[Word]) -> Iterator[tuple[int, int, str]]:
    """Runs of two words and more: start, length, stems."""
    for start in range(len(words) - 1):
        key = words[start].stem
        for length in range(2, min(LONGEST_PHRASE, len(words) - start) + 1):
            key += " " + words[start + length - 1].stem
            yield start, length, key


def make_concept(phrase: str) -> str:
    """The concept of an English word or phrase."""
    words = fold(phrase).replace("-", " ").split()
    return " ".join(stem_english(word) for word in words if word not in ENGLISH) or phrase


@cache
def weigh_glosses(glosses: tuple[str, ...]) -> Concepts:
    concepts: Concepts = {}
    for number, gloss in enumerate(glosses):
        key = make_concept(gloss)
        concepts.setdefault(key, FIRST_GLOSS if number == 0 else LATER_GLOSS)
        if " " in key:
            for part in key.split():
                concepts.setdefault(part, PART_OF_GLOSS)
    return concepts


def _count_common(one: str, other: str) -> int:
    """The length of the common beginning, less the rest of the lemma."""
    common = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        common += 1
    return 2 * common - len(one)


FUNCTION_WORDS = {
    "kolik": "how much", "kde": "where", "kdy": "when", "jak": "how", "co": "what", "kdo": "who",
    "proc": "why", "kam": "where", "ktery": "which", "ktera": "which", "ktere": "which",
    "jaky": "which", "jaka": "which", "jake": "which", "muzu": "can i", "mohu": "can i",
    "muzeme": "can we", "muzete": "can you", "muze": "can", "musim": "must i", "musi": "must",
    "bez": "without", "s": "with", "pro": "for", "od": "from", "do": "to", "pred": "before",
    "po": "after", "mate": "do you have", "mam": "i have", "nemam": "i do not have",
    "nemuzu": "i cannot", "ne": "not", "nic": "nothing", "potrebuji": "i need",
    "potrebuju": "i need", "chci": "i want", "chtel": "i want", "chtela": "i want", "den": "day",
    "dnes": "today", "a": "and", "nebo": "or", "v": "in", "na": "on", "je": "is", "jsem": "i am",
    "jsou": "are", "muj": "my", "moje": "my", "vase": "your", "vas": "you", "kdyz": "when",
    "pokud": "if", "k": "to", "u": "at", "za": "for",
}  # fmt: skip


@cache
def load() -> Lexicon:
    folder = Path(__file__).parent
    czech = (folder / "czech.tsv").read_text(encoding="utf-8")
    return Lexicon(czech, (folder / "english.tsv").read_text(encoding="utf-8"))


def translate(text: str) -> str:
    """A Czech text word by word in English, for a model that knows only English."""
    if detect(text) == "en":
        return text
    words = split_words(text, "cs", MOST_TRANSLATED_WORDS)
    return " ".join(filter(None, load().translate(words)))
