"""Processes that import a framework; nothing outside this package and `hosting` does."""
