"""The published tables."""
