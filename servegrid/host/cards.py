"""The NVIDIA card that this process uses: the first that CUDA_VISIBLE_DEVICES leaves it, known by its UUID.

CUDA numbers the cards of a host in another order than NVML, so a number is never taken for NVML's. On a host
of several cards each has its own cores, so that servers and load of one do not disturb another's measurement.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from servegrid.domain.errors import UserError

CPU = "cpu"
"""The name of a host's CPU among its devices, of which there is one."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
BY_UUID = ("GPU-", "MIG-")
FIRST_OF_CUDA = """
import ctypes
cuda, device, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
failed = cuda.cuInit(0)
if failed == 100:  # no device
    raise SystemExit
failed = failed or cuda.cuDeviceGet(ctypes.byref(device), 0)
failed = failed or getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(uuid, device)
if failed:
    raise SystemExit(f"CUDA's error {failed}")
print(bytes(uuid).hex())
"""
"""Prints the UUID of the first card that CUDA shows; nothing where it shows none."""


def gpu_names() -> tuple[str, ...]:
    """Names of the NVIDIA cards that NVML sees; empty without a driver."""
    with nvml() as pynvml:
        if pynvml is None:
            return ()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)


def card_name() -> str | None:
    """The name of the NVIDIA card that this process uses; None without one."""
    with nvml() as pynvml:
        handle = used_card(pynvml)
        return None if handle is None else str(pynvml.nvmlDeviceGetName(handle))


def card() -> dict[str, str]:
    """Compute capability and driver of the NVIDIA card that this process uses, on which what is built for a
    card depends; empty without one."""
    with nvml() as pynvml:
        handle = used_card(pynvml)
        if handle is None:
            return {}
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        return {"compute_capability": f"{major}.{minor}", "driver": str(pynvml.nvmlSystemGetDriverVersion())}


def card_uuid() -> str | None:
    """The UUID of the NVIDIA card that this process uses; None without one."""
    return _card_uuid(os.environ.get(VISIBLE))


@functools.cache
def _card_uuid(visible: str | None) -> str | None:
    with nvml() as pynvml:
        handle = used_card(pynvml)
        return None if handle is None else str(pynvml.nvmlDeviceGetUUID(handle))


def pin_card(device_kind: Literal["cpu", "gpu"]) -> None:
    """Let child processes see only the card that this one uses, or none for a cell of the CPU: Triton puts
    the configured number of instances on each visible card, and PyTorch a context on the first."""
    if device_kind == "gpu" and (uuid := card_uuid()):
        os.environ[VISIBLE] = uuid
    if device_kind == "cpu" and gpu_names():
        os.environ[VISIBLE] = ""


@contextmanager
def using(device_kind: Literal["cpu", "gpu"]) -> Iterator[None]:
    """`pin_card` for as long as the block runs."""
    before = os.environ.get(VISIBLE)
    pin_card(device_kind)
    try:
        yield
    finally:
        os.environ.pop(VISIBLE, None)
        if before is not None:
            os.environ[VISIBLE] = before


def used_card(pynvml: Any) -> Any:
    """NVML's handle of the card that this process uses; None without one, or without a driver (None)."""
    uuid = _used(pynvml) if pynvml else None
    return pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else None


def _used(pynvml: Any) -> str | None:
    given = os.environ.get(VISIBLE)
    first = (given or "").partition(",")[0].strip()
    if first.startswith(BY_UUID):
        return first
    if given is not None and not first.isdigit():  # an empty text, or -1, leaves no card
        return None
    if given is None and pynvml.nvmlDeviceGetCount() == 1:
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
    return first_of_cuda(given, os.environ.get("CUDA_DEVICE_ORDER"))


@functools.cache
def first_of_cuda(visible: str | None, order: str | None) -> str | None:
    """The UUID of the card that CUDA numbers 0 under these variables of this process; None without one. A
    child process asks, so that this one has no part on a card.

    Raises:
        UserError: CUDA does not say.
    """
    command = [sys.executable, "-S", "-E", "-c", FIRST_OF_CUDA]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise UserError(
            f"{VISIBLE}={visible or ''}: CUDA does not say which card that is ({why}); name the card by its "
            "UUID, which `nvidia-smi -L` lists"
        )
    text = done.stdout.strip()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" if text else None


def share(cores: Sequence[int], number: int, of: int) -> tuple[int, ...]:
    """Part `number` (from 0) of so many equal parts; all cores, where there are fewer than parts."""
    each = len(cores) // of
    return tuple(cores[number * each : (number + 1) * each]) if each else tuple(cores)


@contextmanager
def pinned() -> Iterator[None]:
    """In the block this thread, and all that it starts, run on the cores of the card that it uses; on a host
    of one card, or without one, on all."""
    before = os.sched_getaffinity(0)
    uuids = _uuids()
    uuid = card_uuid()
    if len(uuids) > 1 and uuid in uuids:
        os.sched_setaffinity(0, share(sorted(before), uuids.index(uuid), len(uuids)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned_cores() -> tuple[int, ...] | None:
    """The cores that this process may use, where those are not all of the host."""
    cores = os.sched_getaffinity(0)
    return tuple(sorted(cores)) if len(cores) < (os.cpu_count() or 1) else None


def _uuids() -> list[str]:
    """Those of the host's cards, in one order for every process."""
    with nvml() as pynvml:
        count = pynvml.nvmlDeviceGetCount() if pynvml else 0
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return sorted(str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles)


@contextmanager
def nvml() -> Iterator[Any]:
    """NVIDIA's management library, as long as the block runs; None without a driver or a card."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml if pynvml.nvmlDeviceGetCount() else None
    finally:
        pynvml.nvmlShutdown()
