"""Checks of an installation, and what to do about them."""
