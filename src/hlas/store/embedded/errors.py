class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL could not be used; the message is one sentence for the user."""
