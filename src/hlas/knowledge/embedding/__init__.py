"""Ranking by meaning: an embedding process on each host, and what workers do with it (ADR-0016)."""
