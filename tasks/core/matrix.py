"""From a model's spec and a device's profile to the cells that run, and those that do not, each with
its reason. Pure: no file, clock or process is touched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from typing import TypeVar

from tasks.core.errors import unknown
from tasks.core.spec import GpuProfile, ModelSpec, Variant
from tasks.core.values import Cell, Excluded, Format, Generator, LoadPlan, Precision, Product, Serving, Value

Name = TypeVar("Name", bound=str)


class Selection(Value):
    """Which part of the matrix is wanted; an empty tuple means all of it."""

    formats: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()


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
    selection: Selection,
) -> Plan:
    """Every format x precision x instance count of one model on one profile.

    Raises:
        UserError: a variant, format or precision that the model does not have.
    """
    if variant_name not in spec.variants:
        raise unknown(f"variant of {spec.name}", variant_name, spec.variants)
    variant = spec.variants[variant_name]
    formats = chosen("format", selection.formats, tuple(spec.formats))
    known = tuple(dict.fromkeys(p for f in spec.formats.values() for p in f.precisions))
    precisions = chosen("precision", selection.precisions, known)

    cells: list[Cell] = []
    excluded: list[Excluded] = []
    for format_, precision, instances in combinations(formats, precisions, variant.serving.instances):
        product = Product(
            model=spec.name,
            variant=variant_name,
            parameters=variant.parameters,
            export_format=spec.formats[format_].export,
            format=format_,
            precision=precision,
            opset=spec.opset if spec.formats[format_].export == "onnx" else None,
            torch_jit="trace" if spec.formats[format_].export == "ts-trace" else "none",
            triton_release=triton_release,
        )
        cell = _cell(product, variant, profile, instances, generator)
        reason = why_not(spec, format_, precision, profile)
        if reason:
            entry = Excluded(cell=cell, reason=reason)
            excluded.append(entry)
        else:
            cells.append(cell)
    return Plan(cells=tuple(cells), excluded=tuple(excluded))


def why_not(spec: ModelSpec, format_: Format, precision: Precision, profile: GpuProfile) -> str | None:
    """The rule that keeps this format and precision from running on this device, if one does."""
    if precision not in spec.formats[format_].precisions:
        return f"models/{spec.name}/model.yaml lists no {precision} for {format_}"
    if precision not in profile.precisions:
        return f"gpu_profiles/{profile.name}.yaml: {profile.description} has no {precision}"
    for rule in profile.unsupported:
        if (rule.format, rule.precision) == (format_, precision):
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
    product: Product, variant: Variant, profile: GpuProfile, instances: int, generator: Generator
) -> Cell:
    static = Serving(
        batching="static",
        max_batch_size=variant.serving.max_batch_size,
        instances=instances,
        device_kind=profile.device_kind,
        load_timeout_s=variant.serving.load_timeout_s,
    )
    batcher = {
        "batching": "dynamic",
        "preferred_batch_sizes": variant.serving.preferred_batch_sizes,
        "max_queue_delay_us": variant.serving.max_queue_delay_us,
    }
    return Cell(
        product=product,
        static=static,
        dynamic=static.model_copy(update=batcher),
        offline=LoadPlan(
            scenario="offline",
            batch_sizes=variant.offline.batch_sizes,
            concurrency=(1,),
            generator=generator,
        ),
        online=LoadPlan(
            scenario="online",
            batch_sizes=(variant.online.client_batch,),
            concurrency=variant.online.concurrency,
            generator=generator,
        ),
        profile=profile.name,
    )
