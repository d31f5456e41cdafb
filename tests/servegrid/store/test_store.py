"""The artifact store: keys, damage, two builders at once, and builders that die."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.values import ArtifactRef
from servegrid.host.files import digest_tree
from servegrid.store.store import BuildRequest, Store


def ref(digest: str, path: str = "objects/a", size: int = 1) -> ArtifactRef:
    return ArtifactRef(digest=digest, path=path, size=size)


REQUEST = BuildRequest(
    stage="export",
    version=1,
    fields={"opset": 13, "interface": {"x": 1, "y": 2}},
    inputs={"prepared": ref("aa"), "samples": ref("bb")},
    sources={"model.py": "11", "net.py": "22"},
    libraries={"torch": "2.13", "onnx": "1.23"},
)


def write(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "weights.bin").write_bytes(bytes(range(256)))
    (folder / "sub" / "names.txt").write_text("a b c")


def refuse(folder: Path) -> None:
    raise AssertionError("make was called")


# Keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "convert"},
        {"version": 2},
        {"fields": {"opset": 14, "interface": {"x": 1, "y": 2}}},
        {"fields": {"opset": "13", "interface": {"x": 1, "y": 2}}},
        {"fields": {"opset": 13, "interface": {"x": 1, "y": 3}}},
        {"fields": {"opset": 13, "interface": {"x": 1, "y": 2}, "more": None}},
        {"inputs": {"prepared": ref("aa"), "samples": ref("cc")}},
        {"inputs": {"prepared": ref("bb"), "samples": ref("aa")}},
        {"inputs": {"prepared": ref("aa")}},
        {"sources": {"model.py": "11", "net.py": "33"}},
        {"sources": {"model.py": "11"}},
        {"libraries": {"torch": "2.14", "onnx": "1.23"}},
        {"libraries": {"torch": "2.13", "onnx": "absent"}},
    ],
)
def test_key_changes_with_everything_that_a_stage_reads(change: dict[str, Any]) -> None:
    assert REQUEST.model_copy(update=change).key != REQUEST.key


def test_key_ignores_the_order_in_which_things_were_named() -> None:
    turned = BuildRequest(
        stage="export",
        version=1,
        fields={"interface": {"y": 2, "x": 1}, "opset": 13},
        inputs={"samples": ref("bb"), "prepared": ref("aa")},
        sources={"net.py": "22", "model.py": "11"},
        libraries={"onnx": "1.23", "torch": "2.13"},
    )
    assert turned.key == REQUEST.key


def test_key_ignores_where_an_input_lies() -> None:
    moved = {"prepared": ref("aa", path="elsewhere/x", size=9), "samples": ref("bb")}
    assert REQUEST.model_copy(update={"inputs": moved}).key == REQUEST.key


# Building ----------------------------------------------------------------------------------------------


def test_artifact_that_was_built_is_kept_and_found_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    built = store.build(REQUEST, write)
    assert store.build(REQUEST, refuse) == store.find(REQUEST.key) == built
    assert (store.path(built) / "weights.bin").read_bytes() == bytes(range(256))
    assert (store.path(built) / "sub" / "names.txt").read_text() == "a b c"
    assert built.size == 256 + 5
    assert built.path == f"objects/{digest_tree(store.path(built))}"
    assert not any((tmp_path / "scratch").iterdir())


def test_store_that_was_moved_still_finds_its_artifacts(tmp_path: Path) -> None:
    built = Store(tmp_path / "old").build(REQUEST, write)
    (tmp_path / "old").rename(tmp_path / "new")
    assert Store(tmp_path / "new").build(REQUEST, refuse) == built


def test_two_keys_of_the_same_content_share_one_object(tmp_path: Path) -> None:
    store = Store(tmp_path)
    other = REQUEST.model_copy(update={"version": 2})
    assert store.build(REQUEST, write) == store.build(other, write)
    assert len(list((tmp_path / "objects").iterdir())) == 1
    assert len(list((tmp_path / "keys").iterdir())) == 2


@pytest.mark.fault("Processes", "nothing is kept", what="a builder fails with")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_make_that_raises_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise error("halfway")

    store = Store(tmp_path)
    with pytest.raises(error, match="halfway"):
        store.build(REQUEST, fail)
    assert store.find(REQUEST.key) is None
    left = [p for p in tmp_path.rglob("*") if p.is_file() and p.parent.name != "locks"]
    assert left == []
    assert not any((tmp_path / "scratch").iterdir())
    assert store.build(REQUEST, write).size == 261


# Damage ------------------------------------------------------------------------------------------------


def flip_a_byte(folder: Path) -> None:
    data = bytearray((folder / "weights.bin").read_bytes())
    data[100] ^= 1
    (folder / "weights.bin").write_bytes(data)


def delete_a_file(folder: Path) -> None:
    (folder / "sub" / "names.txt").unlink()


def cut_a_file(folder: Path) -> None:
    os.truncate(folder / "weights.bin", 0)


def add_a_file(folder: Path) -> None:
    (folder / "more.txt").touch()


def delete_all(folder: Path) -> None:
    folder.rename(folder.with_name("gone"))


@pytest.mark.fault("Disks", "it is seen, and built again", what="an artifact was damaged:")
@pytest.mark.parametrize("damage", [flip_a_byte, delete_a_file, cut_a_file, add_a_file, delete_all])
def test_damaged_object_is_not_found_and_is_rebuilt_in_place(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    store = Store(tmp_path)
    built = store.build(REQUEST, write)
    damage(store.path(built))
    assert store.find(REQUEST.key) is None
    assert not store.intact(built)
    assert store.build(REQUEST, write) == built
    assert store.intact(built)


@pytest.mark.parametrize(
    ("digest", "path"),
    [
        ("{}", "../outside"),
        ("{}", "/etc"),
        ("{}", "objects/../../outside"),
        ("../../outside", "objects/../../outside"),
    ],
    ids=["up", "to the root", "by its folder", "by its digest"],
)
@pytest.mark.fault(
    "Security", "it is not followed; the artifact is built", what="a key of the store leads out"
)
def test_key_that_leads_out_of_the_store_is_not_followed(tmp_path: Path, digest: str, path: str) -> None:
    store = Store(tmp_path / "store")
    built = store.build(REQUEST, write)
    (tmp_path / "outside").mkdir()
    write(tmp_path / "outside")  # with the very content that the digest names
    entry = tmp_path / "store" / "keys" / f"{REQUEST.key}.json"
    outside = built.model_copy(update={"digest": digest.format(built.digest), "path": path})
    text = entry.read_text()
    entry.write_text(text.replace(built.path, path).replace(f'"{built.digest}"', f'"{outside.digest}"'))
    assert entry.read_text() != text
    assert store.find(REQUEST.key) is None
    assert store.build(REQUEST, write) == built


@pytest.mark.fault("Disks", "it is seen, and written anew", what="a key of the store was damaged:")
@pytest.mark.parametrize("text", ["", '{"artifact": {"dig', "{}", '{"artifact": 3}', "null", "[]", "\xff"])
def test_damaged_key_is_not_found_and_is_written_anew(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    built = store.build(REQUEST, write)
    (tmp_path / "keys" / f"{REQUEST.key}.json").write_text(text, encoding="latin-1")
    assert store.find(REQUEST.key) is None
    assert store.build(REQUEST, write) == built
    assert store.find(REQUEST.key) == built


# Several builders --------------------------------------------------------------------------------------

# Arguments: the store, and a folder for signs. Waits inside make until the sign `go` is there.
BUILDER = """
import sys, time
from pathlib import Path
from servegrid.host.files import digest_tree
from servegrid.store.store import BuildRequest, Store
root, signs, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
def make(folder):
    (folder / "part").write_text("part")
    (signs / f"making-{name}").touch()
    while not (signs / "go").exists():
        time.sleep(0.01)
    (folder / "part").write_text("whole")
(signs / f"ready-{name}").touch()
print(Store(root).build(BuildRequest(stage="s", version=1, fields={}), make).digest)
"""


def builder(root: Path, signs: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(root), str(signs), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_of_two_processes_that_build_one_key_one_makes_and_both_have_it(
    tmp_path: Path, processes: Any
) -> None:
    (signs := tmp_path / "signs").mkdir()
    first = builder(tmp_path / "store", signs, "first")
    processes.wait_for((signs / "making-first").exists)
    second = builder(tmp_path / "store", signs, "second")
    processes.wait_for((signs / "ready-second").exists)
    time.sleep(0.3)  # long enough for a second maker to start, if it were let
    (signs / "go").touch()
    outputs = {first.communicate(timeout=20)[0], second.communicate(timeout=20)[0]}
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(outputs) == 1
    assert not (signs / "making-second").exists()


@pytest.mark.fault("Processes", "the next one clears what it left", what="a builder is killed")
def test_files_of_a_killed_builder_are_removed_by_the_next(tmp_path: Path, processes: Any) -> None:
    (signs := tmp_path / "signs").mkdir()
    request = BuildRequest(stage="s", version=1, fields={})
    killed = builder(tmp_path / "store", signs, "killed")
    processes.wait_for((signs / "making-killed").exists)
    killed.kill()
    killed.communicate()
    store = Store(tmp_path / "store")
    assert (store.root / "scratch" / request.key / "part").is_file()
    assert store.find(request.key) is None
    seen = []

    def make(folder: Path) -> None:
        seen.extend(folder.iterdir())
        (folder / "whole").touch()

    built = store.build(request, make)
    assert seen == []
    assert [p.name for p in store.path(built).iterdir()] == ["whole"]
    assert not any((store.root / "scratch").iterdir())


def test_two_keys_of_the_same_content_can_be_built_at_once(tmp_path: Path) -> None:
    store, both_made = Store(tmp_path), threading.Barrier(2)
    results: list[ArtifactRef | BaseException] = []

    def make(folder: Path) -> None:
        for number in range(200):
            (folder / str(number)).write_text(str(number))
        both_made.wait(timeout=20)

    def build(version: int) -> None:
        try:
            results.append(store.build(REQUEST.model_copy(update={"version": version}), make))
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=build, args=(version,)) for version in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert results[0] == results[1]
