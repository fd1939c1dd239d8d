"""Requests that we make to addresses which others name."""
