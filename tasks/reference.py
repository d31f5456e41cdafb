"""Stages `reference` and `converted_answers`: the samples' outputs from the framework in fp32, and from the
converted model before it is served.

The framework's, with the cost of one sample, come from the model's network in a process that has no exported
artifact. A wrong answer of the converted model is a fault of the conversion; one that only the served model
gives is a fault of serving.
"""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.roofline import Count
from servegrid.domain.values import ArtifactRef, Cell
from servegrid.formats import FORMATS
from servegrid.formats.fields import ConvertedAnswersFields
from servegrid.frameworks.fields import ReferenceFields
from servegrid.frameworks.networks import FRAMEWORKS
from servegrid.frameworks.steps import code, convert_step
from servegrid.host.environment import missing, versions
from servegrid.store.build import Workplace, build
from servegrid.store.sources import plugin_sources
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task


def request(plugin: Plugin, cell: Cell, prepared: ArtifactRef | None, samples: ArtifactRef) -> BuildRequest:
    """The network, the samples and the batch size."""
    spec, parameters = plugin.spec, cell.product.parameters
    return BuildRequest(
        stage="reference",
        code=code("reference", FRAMEWORKS[spec.framework]),
        fields=ReferenceFields(
            parameters=parameters,
            framework=spec.framework,
            interface=spec.interface(parameters),
            device=cell.dynamic.device_kind,
            batch_size=cell.dynamic.max_batch_size,
        ),
        inputs=present_inputs(prepared=prepared, samples=samples),
        sources=plugin_sources(plugin),
        libraries=versions(spec.requires),
    )


@build_task
def reference(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Compute the outputs, and count operations, in a child process."""
    return build(request, at)


def read(ref: ArtifactRef, at: Workplace) -> Count:
    """Operations, weights and bytes of one sample, as the framework counts them."""
    return Count.model_validate_json((at.site.store.path(ref) / "count.json").read_text(encoding="utf-8"))


def converted_model_runs(cell: Cell, at: Workplace) -> bool:
    """Whether this environment can run the converted model: a session knows the format, and its libraries are
    here."""
    known = FORMATS[cell.product.format]
    elsewhere = convert_step(cell.product.format) in at.environments
    return known.hosted is not None and not elsewhere and not missing(known.libraries)


def converted_request(
    plugin: Plugin, cell: Cell, converted: ArtifactRef, samples: ArtifactRef
) -> BuildRequest:
    """The converted model, the samples, the session and its batch size."""
    known = FORMATS[cell.product.format]
    assert known.hosted is not None
    session = f"servegrid.formats.{known.hosted.folder}.session"
    return BuildRequest(
        stage="converted_answers",
        code=code("converted_answers", session),
        fields=ConvertedAnswersFields(
            session=known.hosted.folder,
            device=cell.dynamic.device_kind,
            batch_size=plugin.spec.fixed_batch or cell.dynamic.max_batch_size,
        ),
        inputs={"converted": converted, "samples": samples},
        libraries=versions(known.libraries),
    )


@build_task
def converted_answers(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Compute the outputs in a child process."""
    return build(request, at)
