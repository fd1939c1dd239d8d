"""The embedded PostgreSQL: starts, watches and stops a private server in DATA_DIR."""

from hlas.store.embedded.binaries import binary
from hlas.store.embedded.errors import EmbeddedPostgresError
from hlas.store.embedded.server import Server, attach, running, start

__all__ = ["EmbeddedPostgresError", "Server", "attach", "binary", "running", "start"]
