"""Stage `configure`: the model repository of a cell, and the configs of its two servings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import json_format
from prefect import task
from prefect.cache_policies import NO_CACHE

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.releases import load_releases
from servegrid.domain.values import NOT_RUN, ArtifactRef, Cell, Interface, Value
from servegrid.formats import FORMATS
from servegrid.formats.native_config import Acceleration
from servegrid.formats.repository import model_config, write_repository
from servegrid.host.stage_timer import work
from servegrid.store.build import Workplace


class Configured(Value):
    """A model repository to serve; the configs are JSON, as load requests take them."""

    repository: Path
    model: str
    static: str
    dynamic: str


@task(task_run_name="configure {at.cell}", cache_policy=NO_CACHE)
def configure(
    cell: Cell, converted: ArtifactRef, root: Path, at: Workplace, workspace_bytes: int | None = None
) -> Configured:
    """Write the cell's repository; `config.pbtxt` has the dynamic serving.

    Raises:
        UnsupportedError: the model was built but cannot run here, or the server has another version of the
            library that built it.
    """
    with work("configure"):
        artifact = at.site.store.path(converted)
        if (artifact / NOT_RUN).exists():
            raise UnsupportedError((artifact / NOT_RUN).read_text(encoding="utf-8"))
        text = (artifact / "interface.json").read_text(encoding="utf-8")
        interface = Interface.model_validate_json(text)
        product = cell.product
        if cell.dynamic.backend == "native":
            why_not = FORMATS[product.format].native.why_not_built_for
            if reason := why_not(product.triton_release, load_releases(), artifact):
                raise UnsupportedError(reason)
        name = product.model
        acceleration = Acceleration(
            accelerator=product.accelerator,
            precision=product.accelerator_precision,
            workspace_bytes=workspace_bytes,
        )
        config = write_repository(root, name, product.format, cell.dynamic, interface, artifact, acceleration)
        static = model_config(name, product.format, cell.static, interface, acceleration)
        return Configured(repository=root, model=name, static=_json(static), dynamic=_json(config))


def _json(config: Any) -> str:
    text = json_format.MessageToJson(config, preserving_proto_field_name=True, indent=None)
    return str(text)
