"""The artifact store: folders named by the digest of their content, found by the key of the request that
made them.

    objects/<digest>/    one artifact, never changed once there
    keys/<key>.json      the request that made an artifact, for which cell, and the reference to it
    scratch/<key>/       an artifact that is being built
    locks/*.lock         held while a key is built, or an object is moved to its place

The store is a plain folder; several hosts may share it on one file system.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import Field, SerializeAsAny

from servegrid.domain.values import ArtifactRef, Value
from servegrid.host.files import digest_tree, fsync, write_atomic, writing
from servegrid.host.stage_timer import waiting
from servegrid.store.job import Fields


class BuildRequest(Value):
    """Everything that a build step reads; its digest is the cache key.

    code: digests of the project's modules that the step runs; fields: the parts of spec, product and host;
    inputs: artifacts; sources: digests of the model's and the user's files; libraries: versions.

    Not in the key: `files`, where the user's files lie that the step reads by these names, and `alone`,
    whether it measures and needs the device for itself.
    """

    stage: str
    code: dict[str, str] = Field(default={})
    fields: SerializeAsAny[Fields]
    inputs: dict[str, ArtifactRef] = Field(default={})
    sources: dict[str, str] = Field(default={})
    libraries: dict[str, str] = Field(default={})
    files: dict[str, Path] = Field(default={})
    alone: bool = False

    def document(self) -> dict[str, Any]:
        """What the key is made of. An input counts by its content, not by where it lies."""
        document = self.model_dump(mode="json", exclude={"inputs", "files", "alone"})
        document["inputs"] = {name: ref.digest for name, ref in self.inputs.items()}
        return document

    @property
    def key(self) -> str:
        """SHA-256 over the canonical JSON of `document()`."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def present_inputs(**inputs: ArtifactRef | None) -> dict[str, ArtifactRef]:
    """The inputs of a request without those that a product does not have."""
    return {name: ref for name, ref in inputs.items() if ref is not None}


class Entry(Value):
    """The record of one artifact: the document of its request, and the cell that it was made for."""

    request: dict[str, Any]
    artifact: ArtifactRef
    cell: str = ""


class Store:
    """One store folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, ref: ArtifactRef) -> Path:
        """Where the artifact lies on this host."""
        return self.root / ref.path

    def intact(self, ref: ArtifactRef) -> bool:
        """Whether the artifact is there with the content that its digest names."""
        folder = self.path(ref)
        return folder.is_dir() and digest_tree(folder) == ref.digest

    def known(self, key: str) -> ArtifactRef | None:
        """The artifact that is recorded under this key; it is not checked."""
        entry = _entry(self.root / "keys" / f"{key}.json")
        return entry.artifact if entry else None

    def made_for(self, key: str) -> str:
        """The cell that the artifact of this key was made for; empty where none was kept."""
        entry = _entry(self.root / "keys" / f"{key}.json")
        return entry.cell if entry else ""

    def find(self, key: str) -> ArtifactRef | None:
        """The intact artifact of this key, if there is one."""
        ref = self.known(key)
        return ref if ref and self.intact(ref) else None

    def entries(self) -> list[Entry]:
        """All records, the latest first."""
        paths = sorted((self.root / "keys").glob("*.json"), key=lambda p: p.stat().st_mtime, reverse=True)
        return [entry for entry in map(_entry, paths) if entry]

    def build(self, request: BuildRequest, make: Callable[[Path], None], *, cell: str = "") -> ArtifactRef:
        """The artifact of this request: found, or made by `make(empty folder)` and stored.

        Of two builders of one key, one builds and the other waits.
        """
        if found := self.find(request.key):
            return found  # without a lock, so that a store may be read-only
        with self._locked(request.key, f"{request.stage}, which another process builds"):
            if found := self.find(request.key):
                return found
            with writing(self.root), self._scratch(request.key) as folder:
                make(folder)
                ref = self._keep(folder)
            entry = Entry(request=request.document(), artifact=ref, cell=cell)
            write_atomic(self.root / "keys" / f"{request.key}.json", entry.model_dump_json(indent=1))
            return ref

    def _keep(self, folder: Path) -> ArtifactRef:
        digest = digest_tree(folder)
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        ref = ArtifactRef(digest=digest, path=f"objects/{digest}", size=size)
        target = self.path(ref)
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in folder.rglob("*"):
            fsync(path)
        with self._locked(
            digest, "an artifact, which another process stores"
        ):  # another key can have the same content at the same time
            if not self.intact(ref):
                shutil.rmtree(target, ignore_errors=True)
                folder.replace(target)
                fsync(target.parent)
        return ref

    @contextmanager
    def _scratch(self, key: str) -> Iterator[Path]:
        folder = self.root / "scratch" / key
        shutil.rmtree(folder, ignore_errors=True)  # of a builder that was killed
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _locked(self, name: str, what: str) -> Iterator[None]:
        base = self.root / "locks"
        base.mkdir(parents=True, exist_ok=True)
        lock = FileLock(base / f"{name}.lock")
        with waiting(what):
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _entry(path: Path) -> Entry | None:
    """A file of `keys/`; None where there is none, or it is damaged or names a place outside the store."""
    try:
        entry = Entry.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ref = entry.artifact
    ours = re.fullmatch("[0-9a-f]{64}", ref.digest) and ref.path == f"objects/{ref.digest}"
    return entry if ours else None
