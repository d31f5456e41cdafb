"""The environment of the programs that we start: they wait without spinning, send nothing, and write nothing
outside the site."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from servegrid.formats import FORMATS
from servegrid.frameworks.fields import PrepareFields
from servegrid.host import proc, process_environment
from servegrid.store.build import Workplace, read_json, run_step
from servegrid.store.site import Site

TOLD = [*process_environment.DEFAULTS, *process_environment.CACHES]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TOLD:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def at(tmp_path: Path) -> Workplace:
    names = ("home", "models", "profiles", "sources", "results")
    site = Site.model_validate({name: tmp_path / "site" / name for name in names})
    (folder := site.models / "toy").mkdir(parents=True)
    logs = tmp_path / "logs"
    return Workplace(
        site=site, plugin=folder, logs=logs, profile="test-environment", cell="toy", timeout_s=120
    )


def prepare(at: Workplace, body: str, output: Path) -> Any:
    """The values that a step finds in its process: the lines of `body` fill the dictionary `found`."""
    lines = ["import json, os", "def prepare(variant, output, sources, parameters):", "    found = {}"]
    lines += [f"    {line}" for line in body.splitlines()]
    lines += ["    (output / 'found.json').write_text(json.dumps(found))", "    return {}"]
    (at.plugin / "prepare.py").write_text("\n".join(lines) + "\n")
    output.mkdir()
    run_step("prepare", fields=PrepareFields(variant="tiny", parameters={}), inputs={}, output=output, at=at)
    return read_json(output / "found.json")


def test_any_program_gets_the_defaults(tmp_path: Path, processes: Any) -> None:
    log = tmp_path / "log"
    proc.run(
        processes.python("import json, os; print(json.dumps({**os.environ}))"), log_path=log, timeout_s=30
    )
    shown = json.loads(log.read_text().splitlines()[-1])
    assert {name: shown[name] for name in process_environment.DEFAULTS} == process_environment.DEFAULTS


def test_caches_of_a_step_are_below_its_home(at: Workplace, tmp_path: Path) -> None:
    found = prepare(at, "found.update(os.environ)", tmp_path / "out")
    for name in process_environment.CACHES:
        assert Path(found[name]).is_relative_to(at.site.home), name


def test_settings_of_the_user_stay(at: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {name: f"of the user {number}" for number, name in enumerate([*TOLD, "OMP_NUM_THREADS"])}
    users["PYTHONUTF8"] = "0"  # Python refuses any other text
    for name, value in users.items():
        monkeypatch.setenv(name, value)
    found = prepare(at, "found.update(os.environ)", tmp_path / "out")
    assert {name: found[name] for name in users} == users


WRITERS = {
    "PyTorch's optimizer": "import torch\ntorch.optim.AdamW(torch.nn.Linear(2, 2).parameters())",
    "Keras": "import keras",
    "ONNX Runtime": """
import onnxruntime
from onnx import helper
value = [helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnxruntime.InferenceSession(model.SerializeToString())
""",
    "PyTorch's compiler": """
import torch
torch.compile(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU()))(torch.ones(1, 2))
""",
}
WITHOUT_COMPILER = pytest.mark.skipif(
    not all(map(shutil.which, FORMATS["aoti"].tools)), reason="no g++ to compile with"
)


@pytest.mark.parametrize(
    "writer",
    [pytest.param(name, marks=WITHOUT_COMPILER if "compiler" in name else ()) for name in WRITERS],
)
def test_framework_writes_nothing_outside_the_site(
    at: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    outside = [tmp_path / "of_user", tmp_path / "temporary"]
    for folder, name in zip(outside, ("HOME", "TMPDIR"), strict=True):
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    prepare(at, WRITERS[writer], tmp_path / "out")
    assert [path for folder in outside for path in folder.rglob("*")] == []
