"""Stage `prepare`: checkpoint and data of a variant, made or found by the plug-in's prepare.py."""

from __future__ import annotations

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Product
from servegrid.host.environment import versions
from servegrid.host.files import digest_path
from servegrid.store.build import Workplace, build
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest
from tasks.caching import build_task

VERSION = 1


def request(plugin: Plugin, product: Product, site: Site) -> BuildRequest:
    """What prepare reads: the variant, its parameters, prepare.py and data/, and the user's files."""
    variant = plugin.spec.variants[product.variant]
    folder = site.sources / plugin.folder.name
    return BuildRequest(
        stage="prepare",
        version=VERSION,
        fields={
            "variant": product.variant,
            "parameters": product.parameters,
            "files": {s.file: digest_path(folder / s.file) for s in variant.sources},
        },
        sources=plugin.sources("prepare.py", with_data=True),
        libraries=versions(plugin.spec.requires),
    )


def check_sources(plugin: Plugin, variant: str, site: Site) -> None:
    """Raises UserError, naming every file or folder that the variant wants and does not find."""
    folder = site.sources / plugin.folder.name
    missing = [s for s in plugin.spec.variants[variant].sources if not (folder / s.file).exists()]
    if missing:
        lines = [f"  {folder / s.file}\n      published: {s.published}" for s in missing]
        raise UserError(
            f"{plugin.spec.name}, variant {variant!r}: {len(missing)} file(s) or folder(s) are not there; "
            "put them at\n"
            + "\n".join(lines)
            + "\nor give --random-weights, which serves and measures without them"
        )


@build_task
def prepare(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Run the plug-in's preparation."""
    sources = at.site.sources / at.plugin.name
    return build(request, at, files={"sources": sources})
