"""A cell behind a Triton server: configured, the server running, its model loaded on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from servegrid.campaign.layout import ProfileLayout
from servegrid.domain.plugins import Plugin
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import ArtifactRef, Cell, Endpoint, Serving
from servegrid.plan.server_choosing import of_cell
from servegrid.servers import server
from servegrid.servers.base import Running
from servegrid.store.build import Workplace
from tasks.configure import Configured, configure
from tasks.deploy import deploy


@dataclass(frozen=True)
class ServedCell:
    """A cell whose server runs; `load` deploys its model."""

    cell: Cell
    converted: ArtifactRef
    samples: ArtifactRef
    at: Workplace
    workspace_bytes: int | None
    configured: Configured
    running: Running

    def load(self, serving: Serving, sizes: Sequence[int] = ()) -> Endpoint:
        """Load the model with one of the cell's servings and send it a batch, as `deploy` does."""
        return deploy(self.running, self.configured, serving, self.samples, self.at, sizes)

    def reconfigured(self, dynamic: Serving) -> ServedCell:
        """The cell with another dynamic serving, in the same repository and on the same server."""
        cell = self.cell.model_copy(update={"dynamic": dynamic})
        repository = self.configured.repository
        configured = configure(cell, self.converted, repository, self.at, self.workspace_bytes)
        return replace(self, cell=cell, configured=configured)


@contextmanager
def serve(
    plugin: Plugin,
    cell: Cell,
    converted: ArtifactRef,
    samples: ArtifactRef,
    choice: ServerChoice,
    at: Workplace,
) -> Iterator[ServedCell]:
    """Write the cell's repository and run a server on it for as long as the block does; nothing is loaded.

    Raises:
        UnsupportedError: the converted model does not run on this server.
        StepError: the server did not start, or did not answer.
    """
    workspace_bytes = plugin.spec.variants[cell.product.variant].convert.workspace_bytes
    files = ProfileLayout(folder=at.logs.parent)
    configured = configure(cell, converted, files.repository(at.cell), at, workspace_bytes)
    with server(of_cell(choice, cell), at.site, configured.repository, files.server_log(at.cell)) as running:
        yield ServedCell(cell, converted, samples, at, workspace_bytes, configured, running)
