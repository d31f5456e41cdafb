"""Which backend of a server runs a format, and which accelerators act there: rules with their reasons."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import Releases
from servegrid.domain.values import Accelerator, Format, Interface, Precision, SharedMemory
from servegrid.formats import FORMATS

Backend = Literal["native", "hosted"]


def has_cuda_graphs(format_: Format, backend: Backend, profile: GpuProfile, interface: Interface) -> bool:
    """Whether a CUDA graph, where the model asks for one, is really captured."""
    if profile.device_kind != "gpu":
        return False
    if backend == "native":
        return True
    hosted = FORMATS[format_].hosted
    captured = hosted.cuda_graphs if hosted else "none"
    free = any(-1 in tensor.shape[1:] for tensor in interface.outputs)
    return captured == "any" or (captured == "fixed" and not free)


def why_no_environment(format_: Format, profile: GpuProfile) -> str | None:
    """Why nothing makes the format here, if the profile names no environment for it and it needs one."""
    wanted = FORMATS[format_].environment
    if wanted is None or format_ in profile.environments:
        return None
    return (
        f"{format_} is made by {wanted.needs}: name an environment that has it, or an image, in "
        f"gpu_profiles/{profile.name}.yaml, `environments: {{{format_}: /path/to/environment}}` or "
        f"`{{{format_}: {{image: NAME}}}}`"
    )


def choose_backend(
    format_: Format,
    interface: Interface,
    max_batch_size: int,
    opset: int | None,
    backends: Sequence[str],
    release: str,
    known: Releases,
    *,
    elsewhere: bool = False,
) -> tuple[Backend | None, str]:
    """The backend of a server, of a release and with these backends, that runs a format, and why not the
    native one, or why none does. What is made `elsewhere`, in another environment, is not judged by this one:
    it is once it is built (`tasks.configure`)."""
    native, hosted = FORMATS[format_].native, FORMATS[format_].hosted
    reason = native.why_not_in_release(release, opset, known)
    if not elsewhere:
        reason = reason or native.why_not_built_for(release, known, None)
    if native.name not in backends:
        reason = reason or f"the server has no {native.name} backend"
    reason = reason or native.why_not(interface, max_batch_size)
    if reason is None:
        return "native", ""
    if hosted is None:
        return None, f"{reason}, and {format_} is not hosted"
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
    native = FORMATS[format_].native
    if accelerator not in native.accelerators:
        acted_on = [name for name, other in FORMATS.items() if accelerator in other.native.accelerators]
        return f"accelerator {accelerator} acts on {' and '.join(acted_on)}, not on {format_}"
    if profile.device_kind == "cpu":
        return f"accelerator {accelerator} needs a GPU; gpu_profiles/{profile.name}.yaml has none"
    taken = native.accelerators[accelerator]
    if precision not in taken:
        return f"accelerator {accelerator} takes {' and '.join(taken)}, not {precision}"
    if backend == "hosted":
        return f"accelerator {accelerator} is the {native.name} backend's own: a hosted model has none"
    return None


def why_no_shared_memory(kinds: Collection[SharedMemory], profile: GpuProfile) -> str | None:
    """The rule that keeps a kind of shared memory from being used, if one does."""
    if "cuda" in kinds and profile.device_kind == "cpu":
        return f"shared memory cuda needs a GPU; gpu_profiles/{profile.name}.yaml has none"
    return None


def accelerator_precision(accelerator: Accelerator, precision: Precision) -> Precision | None:
    """What the accelerator computes in: `trt` in the model's precision, `amp` in half."""
    if accelerator == "none":
        return None
    return "fp16" if accelerator == "amp" else precision
