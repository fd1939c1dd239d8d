"""Visitors of a tenant's site: origins, sessions, tokens, identities."""
