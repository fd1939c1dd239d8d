"""The embedded PostgreSQL: starts, watches and stops a private server in DATA_DIR."""

from hlas.postgres.binaries import binary
from hlas.postgres.errors import EmbeddedPostgresError
from hlas.postgres.server import Server, attach, running, start

__all__ = ["EmbeddedPostgresError", "Server", "attach", "binary", "running", "start"]
