"""Thin routes: they read the request, call one function of a noun, and shape the response."""
