"""Stage `prepare`: checkpoint and data of a variant, made or found by the plug-in's prepare.py."""

from __future__ import annotations

import functools
from pathlib import Path

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.errors import UserError
from tasks.core.files import digest_file, digest_tree
from tasks.core.plugins import Plugin, source_digests
from tasks.core.site import Site
from tasks.core.store import BuildRequest
from tasks.core.values import ArtifactRef, Product

VERSION = 1


def request(plugin: Plugin, product: Product, site: Site) -> BuildRequest:
    """What prepare reads: the variant, its parameters, prepare.py and data/, and the user's files."""
    variant = plugin.spec.variants[product.variant]
    folder = site.sources / product.model
    return BuildRequest(
        stage="prepare",
        version=VERSION,
        fields={
            "variant": product.variant,
            "parameters": product.parameters,
            "files": {s.file: _digest(folder / s.file) for s in variant.sources},
        },
        sources=source_digests(plugin.folder, "prepare.py", with_data=True),
        libraries=versions(plugin.spec.requires),
    )


def check_sources(plugin: Plugin, variant: str, site: Site) -> None:
    """Raises UserError, naming every file or folder that the variant wants and does not find."""
    folder = site.sources / plugin.spec.name
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


def _digest(path: Path) -> str:
    """Of a source's content. It may be gigabytes and every cell asks: read again only once touched."""
    files = path.rglob("*") if path.is_dir() else [path]
    stats = [(file, file.stat()) for file in files]
    return _digest_as_of(path, frozenset((file, stat.st_size, stat.st_mtime_ns) for file, stat in stats))


@functools.lru_cache(maxsize=256)
def _digest_as_of(path: Path, stamps: frozenset[tuple[Path, int, int]]) -> str:
    return digest_tree(path) if path.is_dir() else digest_file(path)
