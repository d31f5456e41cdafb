"""What every provider of a Triton server gives."""

from __future__ import annotations

from tasks.core.values import Value


class Running(Value):
    """A server that has said it is ready. `shm_prefix` starts the names of its shared memory, `pid` is the
    process whose end is the server's."""

    grpc_url: str
    http_url: str
    version: str
    shm_prefix: str
    log: str
    provider: str
    pid: int
