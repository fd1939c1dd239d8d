"""What a model writes, on its way to the visitor."""
