"""The TensorRT session refuses engines that it cannot run; with a GPU it runs the others correctly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Interface
from servegrid.formats import artifacts
from servegrid.formats.trt.fields import TrtFields
from servegrid.formats.trt.format import TRT, library
from servegrid.host.cards import card
from servegrid.host.environment import missing
from servegrid.store.job import Job

pytestmark = pytest.mark.skipif(
    bool(missing(TRT.libraries)), reason=f"not installed: {missing(TRT.libraries)}"
)

ENGINE = {"library": "tensorrt-rtx", "version": "1.7.1.116", "compute_capabilities": ["8.6", "8.9"]}
HERE = ["tensorrt-rtx", "1.7.1.116"]
MADE = "the engine was built by tensorrt-rtx 1.7.1.116; "
CARDS = "this engine of tensorrt-rtx 1.7.1.116 runs on NVIDIA cards of compute capability 8.6, 8.9; "
CASES = [
    ([*HERE, "8.6"], None),
    ([*HERE, "8.9"], None),
    ([*HERE, "9.0"], CARDS + "this host's has 9.0"),
    ([*HERE, None], CARDS + "this host has none"),
    (["tensorrt-rtx", "1.7.2.1", "8.6"], MADE + "tensorrt-rtx 1.7.2.1 is installed here"),
    (["tensorrt", "1.7.1.116", "8.6"], MADE + "tensorrt 1.7.1.116 is installed here"),
    (["tensorrt", "11.4.0.106", "9.0"], MADE + "tensorrt 11.4.0.106 is installed here"),
]
ASK = """
import json, sys
from pathlib import Path
from servegrid.formats.trt.session import Session, refusal
engine, cases = json.loads(sys.argv[1]), json.loads(sys.argv[2])
messages = []
for kind in ("CPU", "GPU"):
    try:
        Session(Path("/nowhere"), kind)
        messages.append("opened")
    except (RuntimeError, OSError) as error:
        messages.append(str(error))
print(json.dumps([[refusal(engine, *case) for case in cases], messages]))
"""


def test_engine_of_another_library_or_card_is_refused_and_both_are_named(
    run_python: Callable[..., str],
) -> None:
    text = run_python(ASK, json.dumps(ENGINE), json.dumps([case for case, _ in CASES]))
    found, (on_cpu, on_gpu) = json.loads(text.splitlines()[-1])
    assert found == [expected for _, expected in CASES]
    assert on_cpu == "a TensorRT engine runs on a GPU, not on KIND_CPU"
    assert on_gpu.startswith("PyTorch, which moves the tensors, sees no GPU") or "engine.json" in on_gpu


RUN = """
import json, sys
from pathlib import Path
import numpy as np
from servegrid.formats.trt.convert import convert_tensorrt
from servegrid.frameworks.steps import read_job
from servegrid.formats.trt.session import Session
job = read_job(Path(sys.argv[1]))
convert_tensorrt(job)
session = Session(job.output, "GPU")
right = []
for batch in (1, 8, 2):
    x = np.arange(batch * 6, dtype=np.float32).reshape(batch, 6) % 5
    y = session.run({"x": x})
    right.append(np.array_equal(y["double"], 2 * x))
try:
    session.run({"x": np.zeros((9, 6), np.float32)})
except RuntimeError as error:
    right.append(str(error).startswith("x: shape [9, 6]: "))
print(json.dumps([sorted(p.name for p in job.output.iterdir()), list(map(bool, right))]))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not card(), reason="needs an NVIDIA GPU that the installed TensorRT runs on")
def test_session_runs_only_the_batches_that_the_engine_is_built_for(
    interface: Callable[..., Interface],
    onnx_artifact: Callable[..., Path],
    run_python: Callable[..., str],
    tmp_path: Path,
) -> None:
    io = interface([("x", "float32", (-1, 6))], [("double", "float32", (-1, 6))])
    source = onnx_artifact(io, [("Add", ["x", "x"], ["double"], {})])
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    artifacts.write_interface(source, io)
    artifacts.write_example(source, {"x": x}, {"double": 2 * x})
    fields = TrtFields.model_validate(
        {
            "precision": "fp32",
            "tolerances": Tolerances(absolute=1e-6, cosine=0.999),
            "library": library(),
            "shapes": {"x": {"min": [1, 6], "opt": [4, 6], "max": [8, 6]}},
            "workspace_bytes": None,
            "card": card(),
        }
    )
    output = tmp_path / "engine"
    output.mkdir()
    job = Job(
        step="convert_tensorrt", fields=fields, inputs={"source": source}, plugin=tmp_path, output=output
    )
    (tmp_path / "job.json").write_text(job.model_dump_json())
    files, right = json.loads(run_python(RUN, tmp_path / "job.json").splitlines()[-1])
    assert {"engine.json", "margins.json", "model.plan"} <= set(files)
    assert right == [True] * 4
