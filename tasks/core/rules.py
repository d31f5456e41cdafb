"""Which backend of a server runs a format, and which accelerators act there: rules with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tasks.core.profile import GpuProfile
from tasks.core.values import Accelerator, Format, Interface, Precision
from tasks.formats import FORMATS

Backend = Literal["native", "hosted"]

NATIVE_FROM: dict[Format, str] = {"aoti": "26.03"}
"""The first Triton release whose native backend runs a format: platform `torch_aoti`."""
NATIVE_UNTIL: dict[Format, str] = {"tf-savedmodel": "25.02", "tf-trt": "25.02"}
"""The last one: later images have no tensorflow backend."""
ACTS_ON: dict[Accelerator, tuple[Format, ...]] = {"trt": ("onnx", "tf-savedmodel"), "amp": ("tf-savedmodel",)}
"""Formats whose native backend knows the accelerator (Triton, model configuration, "Optimization Policy")."""
PRECISIONS: dict[Accelerator, tuple[Precision, ...]] = {"trt": ("fp32", "fp16"), "amp": ("fp32",)}
"""Precisions of a model that an accelerator takes: `amp` makes an fp32 graph fp16 where that is safe."""


HOSTED_CUDA_GRAPHS: tuple[Format, ...] = ("onnx", "ts-trace", "ts-script")
"""Formats whose hosted session captures CUDA graphs."""


def has_cuda_graphs(format_: Format, backend: Backend, profile: GpuProfile) -> bool:
    """Whether a CUDA graph, where the model asks for one, is really captured."""
    return profile.device_kind == "gpu" and (backend == "native" or format_ in HOSTED_CUDA_GRAPHS)


def choose_backend(
    format_: Format, interface: Interface, max_batch_size: int, backends: Sequence[str], release: str
) -> tuple[Backend | None, str]:
    """The backend of a server that runs a format, and why not the native one, or why none does."""
    reason = _why_not_native(format_, interface, max_batch_size, backends, release)
    if reason is None:
        return "native", ""
    if "python" in backends:
        return "hosted", reason
    return None, f"{reason}, and no python backend, which would host it"


def why_no_accelerator(
    accelerator: Accelerator, format_: Format, precision: Precision, backend: Backend, profile: GpuProfile
) -> str | None:
    """The rule that keeps an accelerator from acting, if one does.

    On `tf-trt`, which is TensorRT inside, `trt` is only a label that the published tables carry.
    """
    if accelerator == "none" or (accelerator, format_) == ("trt", "tf-trt"):
        return None
    if format_ not in ACTS_ON[accelerator]:
        return f"accelerator {accelerator} acts on {' and '.join(ACTS_ON[accelerator])}, not on {format_}"
    if profile.device_kind == "cpu":
        return f"accelerator {accelerator} needs a GPU; gpu_profiles/{profile.name}.yaml has none"
    if precision not in PRECISIONS[accelerator]:
        return f"accelerator {accelerator} takes {' and '.join(PRECISIONS[accelerator])}, not {precision}"
    if backend == "hosted":
        native = FORMATS[format_].NATIVE_BACKEND
        return f"accelerator {accelerator} is the {native} backend's own: a hosted model has none"
    return None


def accelerator_precision(accelerator: Accelerator, precision: Precision) -> Precision | None:
    """What the accelerator computes in: `trt` in the model's precision, `amp` in half."""
    if accelerator == "none":
        return None
    return "fp16" if accelerator == "amp" else precision


def _why_not_native(
    format_: Format, interface: Interface, max_batch_size: int, backends: Sequence[str], release: str
) -> str | None:
    module = FORMATS[format_]
    if release < NATIVE_FROM.get(format_, release):
        return f"Triton {release} has no native {format_}; {NATIVE_FROM[format_]} is the first with it"
    if release > NATIVE_UNTIL.get(format_, release):
        return f"Triton {release} has no {module.NATIVE_BACKEND} backend; {NATIVE_UNTIL[format_]} is the last"
    if module.NATIVE_BACKEND not in backends:
        return f"the server has no {module.NATIVE_BACKEND} backend"
    if format_ == "aoti" and max_batch_size > 1:
        return "the pytorch backend runs aoti without batching only"
    return module.why_not_native(interface)
