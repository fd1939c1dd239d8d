"""The embedded PostgreSQL: starts, watches and stops a private server in DATA_DIR."""

from hlas.store.embedded.binaries import binary
from hlas.store.embedded.errors import EmbeddedPostgresError
from hlas.store.embedded.server import Server, attach, open_server, start

__all__ = ["EmbeddedPostgresError", "Server", "attach", "binary", "open_server", "start"]
