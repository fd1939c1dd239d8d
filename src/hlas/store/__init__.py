"""PostgreSQL: connections, the writer, migrations, the embedded server, backups."""
