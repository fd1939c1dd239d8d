"""Which language a visitor writes, and the words that carry the meaning."""

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
    """Small words and letters tell the language, diacritics or not; else nobody guesses."""
    assert detect(text) == language


def test_meaningful_words() -> None:
    """Stop words go whatever their diacritics and case; each other word stays once, as written."""
    assert meaningful_words("Můžu, prosím, PLATIT kartou? Platit!") == ["platit", "kartou"]
    assert meaningful_words("how do I do that, please?") == []


def test_most_words() -> None:
    """However long a message is, the words compared are bounded."""
    assert len(meaningful_words(" ".join(f"slovo{n}" for n in range(1000)))) == MOST_WORDS


def test_stop_words_are_folded() -> None:
    """A stop word with diacritics or capitals in the list would never match anything."""
    assert {fold(word) for word in STOP_WORDS} == STOP_WORDS
