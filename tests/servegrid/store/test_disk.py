"""A full or read-only disk: written files stay whole, and a failed write is an error."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from servegrid.campaign.results import Writer, read
from servegrid.domain.errors import refusal
from servegrid.host.files import write_atomic
from servegrid.reporting import writing
from servegrid.store.store import BuildRequest, Store

REQUEST = BuildRequest(stage="export", version=1, fields={})
FULL = "the error names the file and says that no space is left"


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(5000))


def files(folder: Path) -> dict[str, bytes]:
    """Every file's content; locks and what fills the disk left out."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "filler")
    return {str(p.relative_to(folder)): p.read_bytes() for p in found if p.suffix != ".lock"}


@pytest.mark.parametrize("when", ["an artifact is made", "its key is written"])
@pytest.mark.fault("Disks", f"{FULL}; nothing half-made stays; the next build is right", what="full while")
def test_full_disk_while_building(when: str, disk: Any, happened: Any) -> None:
    store = Store(disk.path / "store")

    def make(folder: Path) -> None:
        if "key" in when:
            write(folder)
        disk.fill()
        write(folder)

    with pytest.raises(OSError, match="No space left") as caught:
        store.build(REQUEST, make)
    assert caught.value.errno == errno.ENOSPC
    assert store.find(REQUEST.key) is None
    assert not any((store.root / "scratch").iterdir())
    happened(refusal(caught.value))
    disk.free()
    built = store.build(REQUEST, write)
    assert store.find(REQUEST.key) == built


@pytest.mark.parametrize("how", ["full", "read-only"])
@pytest.mark.fault(
    "Disks", "what is stored is still found, what is not is refused by name", what="the store's is"
)
def test_store_that_cannot_be_written(how: str, disk: Any, happened: Any) -> None:
    store = Store(disk.path / "store")
    built = store.build(REQUEST, write)
    before = files(store.root)
    disk.fill() if how == "full" else disk.read_only()
    assert store.build(REQUEST, write) == built
    other = REQUEST.model_copy(update={"version": 2})
    with pytest.raises(OSError) as caught:  # which one it is, its refusal says
        store.build(other, write)
    assert files(store.root) == before
    message = refusal(caught.value)
    assert message is not None and str(store.root) in message
    happened(message)


@pytest.mark.fault(
    "Disks", f"{FULL}; rows before it and after it are whole", what="full while a row is written"
)
def test_full_disk_while_a_row_is_written(disk: Any, happened: Any) -> None:
    writer = Writer(disk.path / "campaign")
    writer.append("cell", {"cell": "before", "verdict": "passed"})
    disk.fill()
    with pytest.raises(OSError, match="No space left") as caught:
        for number in range(100):  # the last page of the file may have room for some
            writer.append("cell", {"cell": f"lost {number}", "reason": "x" * 1000})
    written = read(disk.path / "campaign")[0]["cell"].to_list()
    disk.free()
    writer.append("cell", {"cell": "after", "verdict": "passed"})
    cells = read(disk.path / "campaign")[0]["cell"].to_list()
    assert cells == [*written, "after"]
    assert written[0] == "before"
    assert len(written) == 1 + number, "what was refused is what is lost"
    happened(f"{caught.value}; {len(cells)} rows are whole")


@pytest.mark.fault(
    "Disks", f"{FULL}; the report before it stays whole", what="full while a report is written"
)
def test_full_disk_while_reporting(disk: Any, happened: Any) -> None:
    folder = disk.path / "campaign"
    Writer(folder).append("cell", {"cell": "a", "model": "m", "profile": "cpu", "verdict": "passed"})
    write_atomic(folder / "report.html", "the report before")
    before = files(folder)
    disk.fill()
    with pytest.raises(OSError, match="No space left") as caught:
        writing.write(folder)
    assert files(folder) == before
    happened(caught.value)
    disk.free()
