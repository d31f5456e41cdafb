"""The registry of steps, and reading the job files of child processes."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from servegrid.domain.errors import UserError
from servegrid.domain.values import Format, Framework
from servegrid.frameworks.fields import ExportFields
from servegrid.frameworks.networks import FRAMEWORKS
from servegrid.frameworks.steps import STEPS, code, convert_step, read_job

EXPORT: dict[str, Any] = {
    "framework": "torch",
    "parameters": {"length": 8},
    "format": "onnx",
    "opset": 17,
    "interface": {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [-1, 8]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [-1, 2]}],
    },
}


def functions(module: str) -> set[str]:
    """The functions of a module, which is not imported: it imports a framework."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", STEPS)
def test_function_of_every_step_is_there_and_its_code_is_known(name: str) -> None:
    module, _, function = STEPS[name].function.partition(":")
    assert function in functions(module)
    assert module in code(name)


@pytest.mark.parametrize("framework", get_args(Framework))
def test_module_of_every_framework_loads_a_network(framework: Framework) -> None:
    assert "load" in functions(FRAMEWORKS[framework])


@pytest.mark.parametrize("format_", get_args(Format))
def test_every_format_has_one_conversion(format_: Format) -> None:
    assert [name for name, step in STEPS.items() if format_ in step.formats] == [convert_step(format_)]


def write(folder: Path, step: str, **fields: Any) -> Path:
    places = {"inputs": {"prepared": "/store/a"}, "plugin": "/models/toy", "paths": [], "output": "/out"}
    path = folder / "job.json"
    path.write_text(json.dumps({"step": step, "fields": fields, **places}))
    return path


def test_job_file_is_read_with_the_fields_of_its_step(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, "export", **EXPORT))
    assert isinstance(job.fields, ExportFields)
    assert (job.fields.opset, job.fields.device) == (17, "cpu")
    assert job.inputs == {"prepared": Path("/store/a")}
    (tmp_path / "again.json").write_text(job.model_dump_json())
    assert read_job(tmp_path / "again.json") == job


@pytest.mark.parametrize(
    ("change", "field"),
    [({"opset": "high"}, "opset"), ({"framework": "jax"}, "framework"), ({"more": 1}, "more")],
)
def test_wrong_field_of_a_job_is_refused(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read_job(write(tmp_path, "export", **EXPORT | change))
    assert [error["loc"][0] for error in caught.value.errors()] == [field]


def test_unknown_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'exprot'") as caught:
        read_job(write(tmp_path, "exprot", **EXPORT))
    assert "'export'" in str(caught.value) and "job.json" in str(caught.value)
