"""Requests to addresses that somebody else chose."""
