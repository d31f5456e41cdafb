"""What importing costs, and how long modules are."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from tasks.core.site import ROOT

FRAMEWORKS = (
    "torch", "tensorflow", "onnx", "onnxruntime", "tensorrt", "tensorrt_rtx_bindings", "transformers",
)  # fmt: skip
IMPORT = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def modules(*packages: str) -> list[str]:
    """Every module below the packages, but those that run where a framework is wanted."""
    names = []
    for path in sorted(p for package in packages for p in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[:2] not in (("tasks", "child"), ("tasks", "hosting")):
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


def loaded_by(names: list[str]) -> set[str]:
    """What a fresh process has loaded when it has imported these."""
    done = subprocess.run([sys.executable, "-c", IMPORT, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_core_imports_no_framework_and_no_prefect() -> None:
    names = modules("tasks/core")
    loaded = loaded_by(names)
    assert set(names) <= loaded
    assert len(names) > 10
    assert loaded.isdisjoint({*FRAMEWORKS, "prefect"})


def test_spec_is_read_with_pydantic_and_yaml_alone() -> None:
    loaded = loaded_by(["tasks.core.spec", "tasks.core.matrix"])
    assert loaded.isdisjoint({*FRAMEWORKS, "prefect", "numpy", "polars", "tritonclient"})


def test_tasks_and_flows_import_no_framework() -> None:
    names = modules("tasks", "flows")
    loaded = loaded_by(names)
    assert {"flows.qualify", "tasks.performance"} <= set(names) <= loaded
    assert loaded.isdisjoint(FRAMEWORKS)


def test_modules_are_short() -> None:
    paths = [p for folder in ("tasks", "flows", "models") for p in (ROOT / folder).rglob("*.py")]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in paths}
    assert {name: n for name, n in lengths.items() if n > 300} == {}
    assert statistics.median(n for n in lengths.values() if n) < 100


def test_models_is_no_package_that_could_hide_a_hubs() -> None:
    assert not list((ROOT / "models").glob("__init__.py"))
    assert not list((ROOT / "models").glob("*/__init__.py"))
