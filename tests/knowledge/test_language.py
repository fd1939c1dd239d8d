"""Language detection, and the words that are searched."""

import pytest

from hlas.knowledge.language import MOST_WORDS, STOP_WORDS, detect, fold, meaningful_words


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Kde najdu fakturu?", "cs"),
        ("chci zrusit smlouvu", "cs"),
        ("Výpověď", "cs"),
        ("Vy\u0301pove\u030cd\u030c", "cs"),
        ("where is my invoice", "en"),
        ("the wifi is slow", "en"),
        ("wifi", None),
        ("", None),
        ("请问", None),
    ],
)
def test_detect(text: str, language: str | None) -> None:
    """Short words and letters identify the language, with or without diacritics; else none."""
    assert detect(text) == language


def test_meaningful_words() -> None:
    """Stop words are removed in any spelling; every other word is kept once, as written."""
    assert meaningful_words("Můžu, prosím, PLATIT kartou? Platit!") == ["platit", "kartou"]
    assert meaningful_words("how do I do that, please?") == []


def test_most_words() -> None:
    """The number of compared words is bounded for any message."""
    assert len(meaningful_words(" ".join(f"slovo{n}" for n in range(1000)))) == MOST_WORDS


def test_stop_words_are_folded() -> None:
    """The stop words are folded; one with diacritics or capitals would never match."""
    assert {fold(word) for word in STOP_WORDS} == STOP_WORDS
