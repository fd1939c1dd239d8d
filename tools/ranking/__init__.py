"""Fits the confidence of the ranking: python -m tools.ranking (make fit)."""
