"""Hlas side by side with bare PostgreSQL and with a plain FastAPI + SQLAlchemy service."""
