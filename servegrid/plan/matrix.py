"""From a model's spec and a device's profile to cells: those that run, and those that do not, each with its
reason. Pure: reads no file and no clock, and starts no process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as combinations
from typing import Any, TypeVar

from servegrid.domain.errors import unknown
from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import Releases
from servegrid.domain.server import ServerCapabilities
from servegrid.domain.spec import LoadDefaults, ModelSpec, Variant
from servegrid.domain.values import (
    Accelerator,
    Cell,
    Excluded,
    Format,
    LoadPlan,
    Precision,
    Product,
    Serving,
    Value,
)
from servegrid.formats import FORMATS
from servegrid.plan.rules import (
    Backend,
    accelerator_precision,
    choose_backend,
    has_cuda_graphs,
    why_no_accelerator,
    why_no_environment,
    why_no_shared_memory,
)
from servegrid.plan.selection import Selection

Name = TypeVar("Name", bound=str)


class Plan(Value):
    """The cells that run, and those that do not."""

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]

    @property
    def every_cell(self) -> tuple[Cell, ...]:
        """The cells that run, then the others."""
        return (*self.cells, *(entry.cell for entry in self.excluded))


def expand(
    spec: ModelSpec,
    variant_name: str,
    profile: GpuProfile,
    capabilities: ServerCapabilities,
    selection: Selection,
    releases: Releases,
) -> Plan:
    """Every format x precision x accelerator x instance count of one model on one profile, for a server
    with these capabilities; `releases` holds the facts about Triton's releases.

    Raises:
        UserError: the model does not have a variant, format, precision or accelerator.
    """
    if variant_name not in spec.variants:
        raise unknown(f"variant of {spec.name}", variant_name, spec.variants)
    bounds = selection.bounds(spec.variants[variant_name])
    variant = selection.bounded(spec.variants[variant_name])
    cells: list[Cell] = []
    excluded: list[Excluded] = []
    for format_, precision, accelerator, instances in _combinations(spec, variant, selection):
        product = Product(
            model=spec.name,
            variant=variant_name,
            parameters=variant.parameters,
            export_format=spec.formats[format_].export,
            format=format_,
            precision=precision,
            accelerator=accelerator,
            accelerator_precision=accelerator_precision(accelerator, precision),
            opset=spec.opset if spec.formats[format_].export == "onnx" else None,
            torch_jit=FORMATS[format_].torch_jit,
            triton_release=capabilities.release_of(format_),
            random_weights=selection.random_weights,
        )
        interface = spec.interface(variant.parameters)
        found, no_backend = choose_backend(
            product,
            interface,
            variant.serving.max_batch_size,
            capabilities,
            releases,
            elsewhere=format_ in profile.environments,
        )
        backend = found or "hosted"
        static = _static(variant, profile, instances, backend)
        if not has_cuda_graphs(format_, backend, profile, interface):
            static = static.model_copy(update={"cuda_graph": False})
        cell = Cell(
            product=product,
            static=static,
            dynamic=_dynamic(static, variant),
            offline=_offline(variant),
            online=_online(variant, selection),
            profile=profile.name,
            bounds=bounds,
        )
        reason = (
            why_not(spec, format_, precision, profile, accelerator)
            or why_no_environment(format_, profile)
            or (None if found else no_backend)
            or why_no_accelerator(accelerator, format_, precision, backend, profile)
            or why_no_shared_memory({variant.offline.shared_memory, variant.online.shared_memory}, profile)
        )
        if reason:
            excluded.append(Excluded(cell=cell, reason=reason))
        else:
            cells.append(cell)
    return Plan(cells=tuple(cells), excluded=tuple(excluded))


def _combinations(
    spec: ModelSpec, variant: Variant, selection: Selection
) -> Iterator[tuple[Format, Precision, Accelerator, int]]:
    """The selected part of the matrix."""
    formats = chosen("format", selection.formats, tuple(spec.formats))
    known = tuple(dict.fromkeys(p for f in spec.formats.values() for p in f.precisions))
    precisions = chosen("precision", selection.precisions, known)
    listed = tuple(dict.fromkeys(a for f in spec.formats.values() for a in f.accelerators))
    accelerators = chosen("accelerator", selection.accelerators, listed)
    counts = selection.instances or variant.serving.instances
    for format_, precision, accelerator, instances in combinations(formats, precisions, accelerators, counts):
        # An accelerator that the user names is listed with its reason where the format does not have it.
        if selection.accelerators or accelerator in spec.formats[format_].accelerators:
            yield format_, precision, accelerator, instances


def why_not(
    spec: ModelSpec, format_: Format, precision: Precision, profile: GpuProfile, accelerator: Accelerator
) -> str | None:
    """The rule that excludes this format, precision and accelerator on this device, if one does."""
    if reason := spec.formats[format_].unsupported:
        return f"models/{spec.name}/model.yaml: {reason}"
    if accelerator not in spec.formats[format_].accelerators:
        return f"models/{spec.name}/model.yaml lists no accelerator {accelerator} for {format_}"
    if known := FORMATS[format_].unbuilt.get(precision):
        return f"{format_} is not built in {precision}: {known}"
    if precision not in spec.formats[format_].precisions:
        return f"models/{spec.name}/model.yaml lists no {precision} for {format_}"
    if precision not in profile.precisions:
        return f"gpu_profiles/{profile.name}.yaml: {profile.description} has no {precision}"
    for rule in profile.unsupported:
        if rule.format == format_ and rule.precision in (None, precision):
            return f"gpu_profiles/{profile.name}.yaml: {rule.reason}"
    return None


def chosen(kind: str, wanted: Sequence[str], known: Sequence[Name]) -> tuple[Name, ...]:
    """The wanted names in the order of the known ones; all if none is wanted.

    Raises:
        UserError: a wanted name is not known.
    """
    for name in wanted:
        if name not in known:
            raise unknown(kind, name, known)
    return tuple(k for k in known if not wanted or k in wanted)


def _static(variant: Variant, profile: GpuProfile, instances: int, backend: Backend) -> Serving:
    serving = variant.serving
    return Serving(
        batching="static" if serving.batches else "disabled",
        max_batch_size=serving.max_batch_size,
        instances=instances,
        device_kind=profile.device_kind,
        backend=backend,
        protocol=serving.protocol,
        cuda_graph=serving.cuda_graph,
        warm_up_batch_sizes=variant.offline.batch_sizes if serving.warm_up and serving.batches else (),
        load_timeout_s=serving.load_timeout_s,
    )


def _dynamic(static: Serving, variant: Variant) -> Serving:
    serving = variant.serving
    batcher: dict[str, Any] = {
        "batching": "dynamic" if serving.batches else "disabled",
        "preferred_batch_sizes": serving.preferred_batch_sizes,
        "max_queue_delay_us": serving.max_queue_delay_us,
    }
    if serving.warm_up and serving.batches:
        sizes = {variant.online.client_batch, *serving.preferred_batch_sizes}
        batcher["warm_up_batch_sizes"] = tuple(sorted(sizes))
    return static.model_copy(update=batcher)


def _offline(variant: Variant) -> LoadPlan:
    return LoadPlan(
        scenario="offline",
        batch_sizes=variant.offline.batch_sizes,
        concurrency=(1,),
        protocol=variant.serving.protocol,
        **_shared(variant.offline),
    )


def _online(variant: Variant, selection: Selection) -> LoadPlan:
    return LoadPlan(
        scenario="online",
        batch_sizes=(variant.online.client_batch,),
        concurrency=variant.online.concurrency,
        protocol=variant.serving.protocol,
        fixed_points=selection.fixed_points,
        request_rates=selection.request_rates,
        distribution=selection.distribution,
        slo=selection.slo,
        **_shared(variant.online),
    )


def _shared(defaults: LoadDefaults) -> dict[str, Any]:
    """The settings of both scenarios."""
    return defaults.model_dump(include=set(LoadDefaults.model_fields) - {"published_input_data"})
