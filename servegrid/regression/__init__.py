"""Compares two campaigns, or two cells in interleaved runs: what changed beyond noise."""
