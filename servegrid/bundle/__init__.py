"""Bundles: the folder with all that serves a cell elsewhere, or that repeats its failed step."""
