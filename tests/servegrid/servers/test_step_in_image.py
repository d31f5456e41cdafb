"""Steps that run in an image which a profile names, by the real docker CLI: what it passes on is recorded by
a stand-in for the engine, which runs the command with the given mounts, network and user."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.errors import StepError, UnsupportedError
from servegrid.domain.profile import Image
from servegrid.frameworks.fields import PrepareFields
from servegrid.frameworks.steps import parse_fields
from servegrid.host import containers, device_locks
from servegrid.store import other_environment
from servegrid.store.build import Workplace, build, read_json, run_step
from servegrid.store.job import Fields
from servegrid.store.other_environment import CODE, check, versions_in
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest

IMAGE = Image(image="localhost/servegrid:1")
FIELDS = PrepareFields(variant="tiny", parameters={})


@pytest.fixture(autouse=True)
def images(engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine.images |= {"localhost/servegrid:1", "localhost/bare:1"}
    engine.created.clear()
    monkeypatch.setattr(device_locks, "LOCKS", tmp_path / "locks")


@pytest.fixture
def at(tmp_path: Path) -> Workplace:
    folders = {name: tmp_path / name for name in ("home", "models", "profiles", "sources", "results")}
    (folder := tmp_path / "models" / "a, b").mkdir(parents=True)  # docker reads a mount as CSV
    return Workplace(
        site=Site.model_validate(folders),
        plugin=folder,
        logs=tmp_path / "logs",
        profile="cpu",
        cell="toy",
        timeout_s=60,
        environments={"prepare": IMAGE, "convert_onnx": IMAGE},
    )


def plug_in(at: Workplace, body: str) -> None:
    """A plug-in whose preparation does this."""
    lines = ["def prepare(variant, output, sources, parameters):", *body.splitlines()]
    (at.plugin / "prepare.py").write_text("\n    ".join(lines) + "\n")


def run(at: Workplace, output: Path) -> None:
    output.mkdir()
    run_step("prepare", fields=FIELDS, inputs={}, output=output, at=at)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_conversion_in_an_image_is_the_one_that_is_made_here(
    engine: Any, at: Workplace, tmp_path: Path, interface: Any, onnx_artifact: Any, caplog: Any
) -> None:
    io = interface([("x", "float32", (-1, 4))], [("y", "float32", (-1, 3))])
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3), np.float32), "b": rng.standard_normal(3, np.float32)}
    graph = onnx_artifact(io, [("Gemm", ["x", "w", "b"], ["y"], {})], weights)
    x = rng.standard_normal((2, 4), np.float32)
    (graph / "interface.json").write_text(io.model_dump_json())
    np.savez(graph / "example.npz", **{"x/x": x, "y/y": x @ weights["w"] + weights["b"]})
    exported = at.site.store.build(
        BuildRequest(stage="export", fields=Fields()),
        lambda folder: [shutil.copy(path, folder) for path in graph.iterdir()] and None,
    )
    request = BuildRequest(
        stage="convert_onnx",
        fields=parse_fields(
            "convert_onnx",
            {"precision": "fp16", "tolerances": {"absolute": 0.01, "relative": 0.01, "cosine": 0.999}},
        ),
        inputs={"source": exported},
    )
    with caplog.at_level(logging.INFO, "servegrid"):
        built = build(request, at)
    assert read_json(at.site.store.path(built) / "margins.json")[0]["largest_difference"] < 0.01
    here = at.model_copy(update={"environments": {}})
    assert build(request.model_copy(update={"libraries": {"onnx": "0"}}), here).digest == built.digest

    assert "y: at most" in caplog.text
    assert "== an image ==" in (at.logs / "toy.convert_onnx.log").read_text()
    (body,) = engine.created  # the second one ran here
    host = body["HostConfig"]
    output = str(at.site.store.root / "scratch" / request.key)
    mounts = {mount["Source"]: (mount["Target"], mount.get("ReadOnly", False)) for mount in host["Mounts"]}
    read = (CODE, at.plugin, at.logs / "toy.convert_onnx.json", at.site.store.path(exported))
    assert mounts == {str(path): (str(path), True) for path in read} | {output: (output, False)}
    assert (host["NetworkMode"], host["AutoRemove"], host["Init"]) == ("none", True, True)
    assert not host["PortBindings"] and not host["DeviceRequests"]
    assert body["User"] == f"{os.getuid()}:{os.getgid()}"
    assert body["Labels"] == {containers.LABEL: containers.owner()}
    assert not engine.containers


def test_a_step_in_an_image_has_its_output_and_the_card_alone(
    engine: Any, at: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_environment, "card_uuid", lambda: "GPU-0af1")
    (tmp_path / "secret").write_text("s")
    plug_in(
        at,
        f"""import os, socket
from pathlib import Path
found = {{"secret": Path({str(tmp_path / "secret")!r}).exists(), "token": "TOKEN" in os.environ}}
for name, act in {{
    "plug-in": lambda: Path(__file__).with_name("new").touch(),
    "network": lambda: socket.create_connection(("192.0.2.1", 80), timeout=5.0),
}}.items():
    try:
        act()
        found[name] = "done"
    except OSError as error:
        found[name] = error.strerror
return found""",
    )
    monkeypatch.setenv("TOKEN", "t")
    run(at.model_copy(update={"profile": "h100"}), tmp_path / "out")
    assert read_json(tmp_path / "out" / "parameters.json") == {
        "secret": False,
        "token": False,
        "plug-in": "Read-only file system",
        "network": "Network is unreachable",
    }
    (card,) = engine.created[0]["HostConfig"]["DeviceRequests"]
    assert (card["DeviceIDs"], card["Capabilities"]) == (["GPU-0af1"], [["gpu"]])


def test_a_failed_step_in_an_image_has_its_log_and_a_command_that_repeats_it(
    engine: Any, at: Workplace, tmp_path: Path
) -> None:
    plug_in(at, "print('about to fail')\nraise ValueError('bad weights')")
    with pytest.raises(StepError, match=r"(?s)^prepare\b.*\b1\n.*ValueError: bad weights") as e:
        run(at, tmp_path / "out")
    assert "about to fail" in Path(e.value.log).read_text()
    plug_in(at, "return {'fixed': 'yes'}")
    again = subprocess.run(shlex.split(e.value.command), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert read_json(at.logs / "toy.prepare.out" / "parameters.json") == {"fixed": "yes"}
    assert not engine.created[-1]["Labels"]  # nobody of ours owns it, so nobody sweeps it away
    assert not engine.containers


def test_an_unsupported_step_in_an_image_gives_its_reason(at: Workplace, tmp_path: Path) -> None:
    plug_in(
        at,
        "from servegrid.domain.errors import UnsupportedError\nraise UnsupportedError('no TensorRT in it')",
    )
    with pytest.raises(UnsupportedError, match=r"^no TensorRT in it$"):
        run(at, tmp_path / "out")


def test_a_step_in_an_image_ends_at_its_limit(engine: Any, at: Workplace, tmp_path: Path) -> None:
    plug_in(at, "import time\ntime.sleep(60)")
    with pytest.raises(StepError, match=r"^prepare\b.*\b2 s"):
        run(at.model_copy(update={"timeout_s": 2}), tmp_path / "out")
    assert not engine.containers


OWNER = """
import sys
from pathlib import Path
from servegrid.frameworks.fields import PrepareFields
from servegrid.store.build import Workplace, run_step
at = Workplace.model_validate_json(sys.argv[1])
fields = PrepareFields(variant="tiny", parameters={})
run_step("prepare", fields=fields, inputs={}, output=Path(sys.argv[2]), at=at)
"""


def test_a_container_dies_with_the_process_that_ran_the_step(
    engine: Any, at: Workplace, tmp_path: Path
) -> None:
    plug_in(at, "import time\n(output / 'started').touch()\ntime.sleep(60)")
    (output := tmp_path / "out").mkdir()
    words = [sys.executable, "-c", OWNER, at.model_dump_json(), str(output)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as owner:
        wait_for((output / "started").exists)
        (container,) = engine.containers.values()
        owner.send_signal(signal.SIGKILL)
    wait_for(lambda: not engine.containers)
    assert not container.running


def test_installed_versions_are_read_inside_the_image(engine: Any, at: Workplace) -> None:
    assert versions_in(IMAGE, ("numpy", "no-such-distribution")) == {
        "no-such-distribution": "absent",
        "numpy": np.__version__,
    }
    check(IMAGE, ("onnxruntime",))
    with pytest.raises(UnsupportedError, match=r"^localhost/bare:1.*: PyYAML, filelock, nu"):
        check(Image(image="localhost/bare:1"), ())
    absent = "No such image: localhost/none:1.*`docker pull localhost/none:1`"
    with pytest.raises(UnsupportedError, match=absent):
        check(Image(image="localhost/none:1"), ())
    assert json.dumps(engine.created).count('"NetworkMode": "none"') == len(engine.created)
    assert not engine.containers
