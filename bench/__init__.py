"""Hlas side by side with bare PostgreSQL and with what people write today."""
