"""The command `servegrid init`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from servegrid.cli.table import say
from servegrid.plan.options import SweepOptions, panel, with_sweep_options
from servegrid.plan.selection import Panel
from servegrid.store.site import default_site

OF_FOLDERS = ("model_dir", "plugin_paths")
OPTIONS = {"sets", *(name for name in SweepOptions.model_fields if panel(name) == Panel.OWN)} - {*OF_FOLDERS}
"""The options about a model file, and its settings."""


@functools.partial(with_sweep_options, without=[n for n in SweepOptions.model_fields if n not in OPTIONS])
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must be new or empty.")],
    options: SweepOptions,
) -> None:
    """Write the model folder of a model file, to look at and to edit."""
    from servegrid.sources.init import command, write_folder

    plugin = write_folder(folder, options, default_site())
    spec = plugin.spec
    for title, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        say(f"{title}: {', '.join(f'{t.name} {t.dtype} {list(t.shape)}' for t in tensors)}")
    for name, entry in spec.formats.items():
        say(f"{name}: {', '.join(entry.precisions)}")
    say(f"{folder / 'model.yaml'} has tolerances and settings to edit; README.md says what else")
    say(command(folder))
