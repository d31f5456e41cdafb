"""The components of a request's latency, under every name that they have."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from servegrid.domain.values import Value


class Component(NamedTuple):
    """Names of one component: in perf_analyzer's CSV (in lower case also in the published tables), in our
    report, and as a field of Triton's inference statistics, where the server measures it."""

    perf_analyzer: str
    title: str
    statistic: str | None = None


class LatencyComponents(Value):
    """Means over the successful requests in ms, in the order in which a request passes them; each field is
    also the column of the rows."""

    client_send_ms: Annotated[float, Component("Client Send", "client send")]
    network_server_send_recv_ms: Annotated[
        float, Component("Network+Server Send/Recv", "network + server send/recv")
    ]
    server_queue_ms: Annotated[float, Component("Server Queue", "server queue", "queue")]
    server_compute_input_ms: Annotated[
        float, Component("Server Compute Input", "compute input", "compute_input")
    ]
    server_compute_infer_ms: Annotated[
        float, Component("Server Compute Infer", "compute infer", "compute_infer")
    ]
    server_compute_output_ms: Annotated[
        float, Component("Server Compute Output", "compute output", "compute_output")
    ]
    client_recv_ms: Annotated[float, Component("Client Recv", "client recv")]


COMPONENTS: dict[str, Component] = {
    column: component
    for column, field in LatencyComponents.model_fields.items()
    for component in field.metadata
    if isinstance(component, Component)
}
"""Column -> its other names."""
