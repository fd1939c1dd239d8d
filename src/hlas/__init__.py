"""Hlas: a multi-tenant chat that a site owner embeds with one script tag."""

__version__ = "0.1.0"
