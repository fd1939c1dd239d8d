"""The index of one tenant's knowledge, in memory."""

from collections.abc import Collection

from hlas.knowledge.entries import Entry
from hlas.knowledge.language import Language, fold, meaningful_words
from hlas.knowledge.ranking import Match, Meaning

MATCHES = 10


class Index:
    def __init__(self) -> None:
        # The highest version that it contains.
        self.version = 0
        self.characters = 0
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry_id: str, entry: Entry) -> None:
        """Add an entry, or replace it."""
        self.remove(entry_id)
        self._entries[entry_id] = entry
        self.characters += entry.count_characters()

    def remove(self, entry_id: str) -> None:
        entry = self._entries.pop(entry_id, None)
        if entry is not None:
            self.characters -= entry.count_characters()

    def keep(self, entry_ids: Collection[str]) -> None:
        """Remove all others."""
        for entry_id in [one for one in self._entries if one not in entry_ids]:
            self.remove(entry_id)

    def search(self, text: str, language: Language, meaning: Meaning | None = None) -> list[Match]:
        """The entries that match the text best, best first."""
        words = {fold(word)[:5] for word in meaningful_words(text)}
        if not words:
            return []
        found = []
        for entry_id, entry in self._entries.items():
            own = {
                fold(word)[:5]
                for word in meaningful_words(
                    " ".join((entry.question, *entry.keywords, *entry.wordings, entry.answer))
                )
            }
            share = len(words & own) / len(words)
            if share:
                found.append(
                    Match(entry_id, entry.question, entry.answer, share, entry.kind, entry.url)
                )
        return sorted(found, key=lambda match: -match.confidence)[:MATCHES]
