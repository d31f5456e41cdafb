"""Artifacts, and the child processes that build them."""
