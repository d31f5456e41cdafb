"""Where the answer to a request of tensors on the GPU is handed over."""

THROUGH_HOST = 256 * 1024
"""Outputs of at most so many bytes, together, are handed over in the host's memory: the Python backend writes
what lies on the GPU to the client's place there by a message more between its two processes. 4 KB took
0.34 ms so, and 0.26 by the host's memory (docs/experiments/shared-memory.md)."""
