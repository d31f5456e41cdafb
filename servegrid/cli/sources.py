"""The command `servegrid sources`."""

from __future__ import annotations

from typing import Annotated

import typer

from servegrid.cli.table import say
from servegrid.domain.errors import unknown
from servegrid.store.site import default_site


def sources(
    model: Annotated[str, typer.Argument(help="The name of a model folder.")],
    variant: Annotated[str, typer.Option(help="The variant that reads the files.")] = "full",
) -> None:
    """List the files that you must provide for a variant: content, publisher, place, and how to get there."""
    from servegrid.plan.models import load_model

    site = default_site()
    spec = load_model(site.models, model).spec
    if variant not in spec.variants:
        raise unknown(f"variant of {model}", variant, list(spec.variants))
    folder = site.sources / model
    files = spec.variants[variant].sources
    if not files:
        say(f"{model}, variant {variant!r}, reads no file of yours")
    else:
        say(f"mkdir -p {folder}")
    for source in files:
        path = folder / source.file
        say(f"{path}: {'present' if path.exists() else 'missing'}", style="bold")
        if source.content:
            say(f"  content: {source.content}")
        say(f"  published: {source.published}")
        if source.download:
            size = f"{source.size} bytes" if source.size else None
            known = (source.download, size, source.digest)
            say(f"  download: {', '.join(filter(None, known))}")
        for command in source.commands:
            say(f"  command: {command.replace('FOLDER', str(folder))}")
