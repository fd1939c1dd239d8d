"""Checks of an installation, and how to fix what they find."""
