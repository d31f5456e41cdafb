"""Rules for backends, accelerators and shared memory, each with its reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import Releases
from servegrid.domain.server import ServerCapabilities
from servegrid.domain.values import Accelerator, Format, Interface, Precision, Product, SharedMemory
from servegrid.formats import FORMATS

Backend = Literal["native", "hosted"]


def has_cuda_graphs(format_: Format, backend: Backend, profile: GpuProfile, interface: Interface) -> bool:
    """Whether the backend captures a CUDA graph if the model's spec wants one."""
    if profile.device_kind != "gpu":
        return False
    if backend == "native":
        return True
    hosted = FORMATS[format_].hosted
    captured = hosted.cuda_graphs if hosted else "none"
    free = any(-1 in tensor.shape[1:] for tensor in interface.outputs)
    return captured == "any" or (captured == "fixed" and not free)


def why_no_environment(format_: Format, profile: GpuProfile) -> str | None:
    """The reason why the format cannot be made: it needs an environment, and the profile names none."""
    wanted = FORMATS[format_].environment
    if wanted is None or format_ in profile.environments:
        return None
    return (
        f"{format_} is made by {wanted.needs}: name an environment that has it, or an image, in "
        f"gpu_profiles/{profile.name}.yaml, `environments: {{{format_}: /path/to/environment}}` or "
        f"`{{{format_}: {{image: NAME}}}}`"
    )


def choose_backend(
    product: Product,
    interface: Interface,
    max_batch_size: int,
    capabilities: ServerCapabilities,
    known: Releases,
    *,
    elsewhere: bool = False,
) -> tuple[Backend | None, str]:
    """The backend that runs a product on a server, and why not the native one; None if no backend runs it.

    elsewhere: another environment makes the product, so its library versions are checked when it is built
    (`tasks.configure`), not here.
    """
    native, hosted = FORMATS[product.format].native, FORMATS[product.format].hosted
    reason = native.why_not_in_release(product.triton_release, product.opset, known)
    if not elsewhere:
        reason = reason or native.why_not_built_for(product.triton_release, known, None)
    if native.name not in capabilities.backends:
        reason = reason or f"the server has no {native.name} backend"
    reason = reason or native.why_not(interface, max_batch_size)
    if reason is None:
        return "native", ""
    if hosted is None:
        return None, f"{reason}, and {product.format} is not hosted"
    if "python" in capabilities.backends:
        return "hosted", reason
    why = capabilities.why_not_python
    return None, f"{reason}, and no python backend, which would host it{why and f': {why}'}"


def why_no_accelerator(
    accelerator: Accelerator, format_: Format, precision: Precision, backend: Backend, profile: GpuProfile
) -> str | None:
    """The rule that excludes an accelerator, if one does.

    A `tf-trt` product holds TensorRT already: there `trt` is a label of the published tables only.
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
    """The rule that excludes a kind of shared memory, if one does."""
    if "cuda" in kinds and profile.device_kind == "cpu":
        return f"shared memory cuda needs a GPU; gpu_profiles/{profile.name}.yaml has none"
    return None


def accelerator_precision(accelerator: Accelerator, precision: Precision) -> Precision | None:
    """The precision in which the accelerator computes: `trt` takes the model's, `amp` is fp16."""
    if accelerator == "none":
        return None
    return "fp16" if accelerator == "amp" else precision
