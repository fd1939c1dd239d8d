"""What a tenant knows: entries, their ranking and files."""
