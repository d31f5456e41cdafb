"""The layers of correctness."""
