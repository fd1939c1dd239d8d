"""Hlas: a multi-tenant chat and voice agent that a site owner embeds with one script tag."""

__version__ = "0.1.0"
