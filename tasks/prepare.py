"""Stage `prepare`: checkpoint and data of a variant, made or found by the model's prepare.py."""

from __future__ import annotations

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Product
from servegrid.frameworks.fields import PrepareFields
from servegrid.frameworks.steps import code
from servegrid.host.environment import versions
from servegrid.host.files import digest_path
from servegrid.store.build import Workplace, build
from servegrid.store.site import Site
from servegrid.store.sources import plugin_sources
from servegrid.store.store import BuildRequest
from tasks.caching import build_task


def request(plugin: Plugin, product: Product, site: Site) -> BuildRequest:
    """The variant, its parameters, the model's folder and the user's files."""
    folder = site.sources / plugin.folder.name
    files = [source.file for source in plugin.spec.variants[product.variant].sources]
    return BuildRequest(
        stage="prepare",
        code=code("prepare"),
        fields=PrepareFields(
            parameters=product.parameters,
            variant=product.variant,
            files={file: digest_path(folder / file) for file in files},
        ),
        sources=plugin_sources(plugin),
        libraries=versions(plugin.spec.requires),
        files={"sources": folder},
    )


@build_task
def prepare(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Run prepare.py in a child process."""
    return build(request, at)


def check_sources(plugin: Plugin, variant: str, site: Site) -> None:
    """Raises UserError, naming every file or folder of the variant that is missing."""
    folder = site.sources / plugin.folder.name
    missing = [s for s in plugin.spec.variants[variant].sources if not (folder / s.file).exists()]
    if missing:
        lines = [f"  {folder / s.file}\n      published: {s.published}" for s in missing]
        raise UserError(
            f"{plugin.spec.name}, variant {variant!r}: {len(missing)} file(s) or folder(s) are missing; "
            "put them at\n"
            + "\n".join(lines)
            + f"\n`servegrid sources {plugin.folder.name} --variant {variant}` shows how to get there"
            + "\nor give --random-weights, which serves and measures without them"
        )
