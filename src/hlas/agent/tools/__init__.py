"""What a model may call: our own tools, products, tools of MCP servers."""
