"""Tools of other people's servers, over the Model Context Protocol (ADR-0012)."""
