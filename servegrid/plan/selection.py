"""The options that select and bound a part of a model's matrix. Every `--help` imports this module, so it
imports little."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from servegrid.domain.names import Count, CountList, Positive, Seconds
from servegrid.domain.slo import Slo
from servegrid.domain.values import (
    Accelerator,
    Bounds,
    Distribution,
    Format,
    InputData,
    Precision,
    Protocol,
    SharedMemory,
    Value,
)

if TYPE_CHECKING:
    from servegrid.domain.spec import LoadDefaults, Variant


class Panel(Enum):
    """The groups of options in `--help`, in their order; the annotation of each field names its group."""

    WHAT = "What to serve"
    OWN = "Your own model"
    SERVED = "How it is served"
    MEASURED = "How it is measured"
    SERVER = "Server"
    WHERE = "Where it runs"


class Selection(Value):
    """The part of the matrix to run, and bounds below the limits of the model's spec."""

    formats: Annotated[tuple[Format, ...], Panel.WHAT] = Field(
        (), description="Only these serving formats; none: all of the model's"
    )
    precisions: Annotated[tuple[Precision, ...], Panel.WHAT] = Field(
        (), description="Only these precisions; none: all of the model's"
    )
    accelerators: Annotated[tuple[Accelerator, ...], Panel.WHAT] = Field(
        (), description="Only these accelerators; none: all of the model's"
    )
    random_weights: Annotated[bool, Panel.WHAT] = Field(
        False, description="Seeded random weights and inputs: needs no checkpoint; ends `measured`"
    )
    instances: Annotated[CountList | None, Panel.SERVED] = Field(
        None, min_length=1, description="Numbers of instances, as 1,2,4: a cell each; none: the model's own"
    )
    max_batch_size: Annotated[Count | None, Panel.SERVED] = Field(None, description="At most this batch size")
    max_concurrency: Annotated[Count | None, Panel.MEASURED] = Field(
        None, description="At most this concurrency online"
    )
    request_count: Annotated[Count | None, Panel.MEASURED] = Field(
        None, description="At least this many requests a window"
    )
    window_s: Annotated[Seconds | None, Panel.MEASURED] = Field(
        None, description="At least this many seconds a window"
    )
    fixed_points: Annotated[bool, Panel.MEASURED] = Field(
        False,
        description="Online, measure every concurrency of the model's spec; else those that find the knee",
    )
    request_rates: Annotated[tuple[Positive, ...], Panel.MEASURED] = Field(
        (), description="Online, also send this many requests/s, open loop"
    )
    distribution: Annotated[Distribution, Panel.MEASURED] = Field(
        "poisson", description="How the requests of a rate are spaced: `poisson` or `constant`"
    )
    slo: Annotated[Slo | None, Panel.MEASURED] = Field(
        None, description="p99=50ms: online, also find the highest request rate within this latency"
    )
    protocol: Annotated[Protocol | None, Panel.SERVED] = Field(
        None, description="`grpc` or `http`, whatever the model's spec says"
    )
    shared_memory: Annotated[SharedMemory | None, Panel.MEASURED] = Field(
        None, description="`none`, `system` or `cuda`, whatever the model's spec says"
    )
    input_data: Annotated[InputData | None, Panel.MEASURED] = Field(
        None,
        description="What the load generator sends: the model's `samples`, or tensors of their shapes, "
        "`random` or `zero`",
    )

    @model_validator(mode="after")
    def _has_a_rate(self) -> Selection:
        if self.distribution != "poisson" and not self.request_rates and self.slo is None:
            raise ValueError("--distribution spaces requests of a rate: give --request-rate or --slo, too")
        return self

    def bounds(self, variant: Variant) -> Bounds:
        """The bounds that are lower than the variant's own limits."""
        batch, most = self.max_batch_size, self.max_concurrency
        return Bounds(
            max_batch_size=batch if batch and batch < variant.serving.max_batch_size else None,
            max_concurrency=most if most and most < max(variant.online.concurrency) else None,
        )

    def bounded(self, variant: Variant) -> Variant:
        """The variant within these bounds; a bound below every point of a list is its only point."""
        batch, most = self.max_batch_size, self.max_concurrency
        serving, offline, online = variant.serving, variant.offline, variant.online
        if batch is not None and serving.batches:
            batch = min(batch, serving.max_batch_size)
            preferred = tuple(size for size in serving.preferred_batch_sizes if size <= batch)
            serving = serving.model_copy(update={"max_batch_size": batch, "preferred_batch_sizes": preferred})
            sizes = tuple(size for size in offline.batch_sizes if size <= batch) or (batch,)
            offline = offline.model_copy(update={"batch_sizes": sizes})
            online = online.model_copy(update={"client_batch": min(online.client_batch, batch)})
        if most is not None:
            points = {c for c in online.concurrency if c <= most}
            if not (points and self.fixed_points):
                points.add(min(most, max(online.concurrency)))  # as far as the search for the knee goes
            online = online.model_copy(update={"concurrency": tuple(sorted(points))})
        names = ("request_count", "window_s", "shared_memory", "input_data")
        given = {name: getattr(self, name) for name in names}
        update = {name: value for name, value in given.items() if value is not None}
        offline = offline.model_copy(update={"input_data": self._input_data(offline)} | update)
        online = online.model_copy(update={"input_data": self._input_data(online)} | update)
        if self.protocol is not None:
            serving = serving.model_copy(update={"protocol": self.protocol})
        return variant.model_copy(update={"serving": serving, "offline": offline, "online": online})

    def _input_data(self, load: LoadDefaults) -> InputData:
        """The spec's, or for the published points what their table was measured on."""
        return (self.fixed_points and load.published_input_data) or load.input_data
