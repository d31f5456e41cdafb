"""Whether outputs of a request on the GPU return in GPU memory or in the host's."""

THROUGH_HOST = 256 * 1024
"""Bytes of all outputs together, up to which they return in the host's memory. For outputs on the GPU the
Python backend's two processes exchange one more message: 4 KB took 0.34 ms that way and 0.26 ms through
the host's memory (docs/experiments/shared-memory.md)."""
