"""From a model's spec and a device's profile to the cells that run, and those that do not, each with
its reason. Pure: no file, clock or process is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as combinations
from types import MappingProxyType
from typing import Any, TypeVar

from servegrid.domain.errors import unknown
from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import Releases
from servegrid.domain.spec import LoadDefaults, ModelSpec, Variant
from servegrid.domain.values import (
    Cell,
    Excluded,
    Format,
    Generator,
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
    """What a campaign will do, and what it leaves out."""

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]


def expand(
    spec: ModelSpec,
    variant_name: str,
    profile: GpuProfile,
    *,
    generator: Generator,
    triton_release: str,
    releases: Releases,
    selection: Selection,
    random_weights: bool = False,
    backends: Sequence[str] = ("python",),
    other_releases: Mapping[Format, str] = MappingProxyType({}),
) -> Plan:
    """Every format x precision x accelerator x instance count of one model on one profile, for a server
    of `triton_release` (of another one for the formats in `other_releases`) that has these backends;
    `releases` is what is known of them.

    Raises:
        UserError: a variant, format, precision, accelerator or number of instances that the model has not.
    """
    if variant_name not in spec.variants:
        raise unknown(f"variant of {spec.name}", variant_name, spec.variants)
    variant = selection.bounded(spec.variants[variant_name])
    formats = chosen("format", selection.formats, tuple(spec.formats))
    known = tuple(dict.fromkeys(p for f in spec.formats.values() for p in f.precisions))
    precisions = chosen("precision", selection.precisions, known)
    listed = tuple(dict.fromkeys(a for f in spec.formats.values() for a in f.accelerators))
    accelerators = chosen("accelerator", selection.accelerators, listed)
    counts = variant.serving.instances
    if selection.instances is not None:
        if selection.instances not in counts:
            raise unknown("number of instances", str(selection.instances), map(str, counts))
        counts = (selection.instances,)

    if spec.fixed_batch:
        generator = "client"  # perf_analyzer's requests to a server that does no batching have a batch of 1
    cells: list[Cell] = []
    excluded: list[Excluded] = []
    for format_, precision, accelerator, instances in combinations(formats, precisions, accelerators, counts):
        listed_here = accelerator in spec.formats[format_].accelerators
        if not listed_here and not selection.accelerators:
            continue  # listed format by format; a format that the user names is listed where it is missing
        release = other_releases.get(format_, triton_release)
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
            triton_release=release,
            random_weights=random_weights,
        )
        interface = spec.interface(variant.parameters)
        most = variant.serving.max_batch_size
        backend, no_backend = choose_backend(
            format_,
            interface,
            most,
            product.opset,
            backends,
            release,
            releases,
            elsewhere=format_ in profile.environments,
        )
        graphs = has_cuda_graphs(format_, backend or "hosted", profile, interface)
        cell = _cell(product, variant, profile, instances, generator, backend or "hosted", graphs, selection)
        reason = None
        if not listed_here:
            reason = f"models/{spec.name}/model.yaml lists no accelerator {accelerator} for {format_}"
        reason = reason or why_not(spec, format_, precision, profile)
        reason = reason or why_no_environment(format_, profile)
        reason = reason or (None if backend else no_backend)
        reason = reason or why_no_accelerator(accelerator, format_, precision, backend or "hosted", profile)
        memory = {variant.offline.shared_memory, variant.online.shared_memory}
        reason = reason or why_no_shared_memory(memory, profile)
        if reason:
            entry = Excluded(cell=cell, reason=reason)
            excluded.append(entry)
        else:
            cells.append(cell)
    return Plan(cells=tuple(cells), excluded=tuple(excluded))


def why_not(spec: ModelSpec, format_: Format, precision: Precision, profile: GpuProfile) -> str | None:
    """The rule that keeps this format and precision from running on this device, if one does."""
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
    """The wanted ones of the known names, in the order known; all when none is named.

    Raises:
        UserError: a wanted name is not known.
    """
    for name in wanted:
        if name not in known:
            raise unknown(kind, name, known)
    return tuple(k for k in known if not wanted or k in wanted)


def _cell(
    product: Product,
    variant: Variant,
    profile: GpuProfile,
    instances: int,
    generator: Generator,
    backend: Backend,
    graphs: bool,
    selection: Selection,
) -> Cell:
    batches = variant.serving.max_batch_size > 0
    static = Serving(
        batching="static" if batches else "disabled",
        max_batch_size=variant.serving.max_batch_size,
        instances=instances,
        device_kind=profile.device_kind,
        backend=backend,
        protocol=variant.serving.protocol,
        cuda_graph=variant.serving.cuda_graph and graphs,
        warm_up_batch_sizes=variant.offline.batch_sizes if variant.serving.warm_up and batches else (),
        load_timeout_s=variant.serving.load_timeout_s,
    )
    batcher: dict[str, Any] = {
        "batching": "dynamic" if batches else "disabled",
        "preferred_batch_sizes": variant.serving.preferred_batch_sizes,
        "max_queue_delay_us": variant.serving.max_queue_delay_us,
    }
    if variant.serving.warm_up and batches:
        sizes = {variant.online.client_batch, *variant.serving.preferred_batch_sizes}
        batcher["warm_up_batch_sizes"] = tuple(sorted(sizes))
    return Cell(
        product=product,
        static=static,
        dynamic=static.model_copy(update=batcher),
        offline=LoadPlan(
            scenario="offline",
            batch_sizes=variant.offline.batch_sizes,
            concurrency=(1,),
            generator=generator,
            protocol=variant.serving.protocol,
            **_shared(variant.offline),
        ),
        online=LoadPlan(
            scenario="online",
            batch_sizes=(variant.online.client_batch,),
            concurrency=variant.online.concurrency,
            generator=generator,
            protocol=variant.serving.protocol,
            **selection.model_dump(include={"fixed_points", "request_rates", "distribution", "slo"}),
            **_shared(variant.online),
        ),
        profile=profile.name,
    )


def _shared(defaults: LoadDefaults) -> dict[str, Any]:
    """The settings that both scenarios have."""
    return defaults.model_dump(include=set(LoadDefaults.model_fields))
