"""Reads, exports and runs models that are files: one module a kind."""
