"""The ceilings of the machine: the rate of matrix products by precision, and of copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from servegrid.domain.roofline import Ceilings
from servegrid.domain.values import Precision
from servegrid.frameworks.fields import CeilingsJob

SMALLEST = 256
LARGEST = {"cpu": 2048, "cuda": 8192}
LONG_ENOUGH_S = 0.02
REPEATS_S = 0.3
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int8": torch.int8,
}


def measure(job: CeilingsJob) -> None:
    """`ceilings.json`; fp32 without TF32."""
    device = "cuda" if job.fields.device == "gpu" else "cpu"
    rates = {precision: _product(dtype, device) for precision, dtype in DTYPES.items()}
    source = torch.ones(COPIED_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    seconds = _fastest(lambda: target.copy_(source), device)
    found = Ceilings(flops_per_s=rates, bytes_per_s=2 * source.numel() / seconds)
    (job.output / "ceilings.json").write_text(found.model_dump_json(), encoding="utf-8")
    for precision, rate in rates.items():
        print(f"{precision}: {'not supported' if rate is None else f'{rate / 1e9:.1f} GFLOP/s'}")
    print(f"copy: {found.bytes_per_s / 1e9:.1f} GB/s")


def _product(dtype: torch.dtype, device: str) -> float | None:
    """FLOP/s of the fastest square product; None where PyTorch has none in this type.

    Sizes double until one product takes LONG_ENOUGH_S.
    """
    multiply: Callable[[Any, Any], Any] = torch._int_mm if dtype == torch.int8 else torch.mm
    size, rate = SMALLEST, None
    try:
        while size <= LARGEST[device]:
            one = torch.ones(size, size, dtype=dtype, device=device)
            seconds = _fastest(lambda one=one: multiply(one, one), device)  # type: ignore[misc]
            rate = max(rate or 0.0, 2 * size**3 / seconds)
            if seconds > LONG_ENOUGH_S:
                break
            size *= 2
    except (RuntimeError, NotImplementedError) as error:
        print(f"{dtype}: {str(error).splitlines()[0]}")
    return rate


def _fastest(call: Callable[[], Any], device: str) -> float:
    """Seconds of the fastest of several calls, after one to warm up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    call()
    wait()
    fastest, start = float("inf"), time.perf_counter()
    while (begin := time.perf_counter()) < start + REPEATS_S or fastest == float("inf"):
        call()
        wait()
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest
