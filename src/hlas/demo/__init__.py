"""The demo: an internet provider with knowledge, products and an MCP server over a CSV."""
