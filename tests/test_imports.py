"""The cost of imports, and the length of modules."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import Counter

from servegrid.domain.root import ROOT

FRAMEWORKS = (
    "torch", "tensorflow", "onnx", "onnxruntime", "tensorrt", "tensorrt_rtx_bindings", "transformers",
)  # fmt: skip
EVERYWHERE = ("format", "__init__")
"""The modules of a format's folder that every process imports; the others run in a child or in Triton."""
IMPORT = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def modules(*packages: str) -> list[str]:
    """Every module of the packages except the modules that need a framework."""
    names = []
    for path in sorted(p for package in packages for p in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        of_format = parts[1:2] == ("formats",) and len(parts) > 3 and parts[-1] not in EVERYWHERE
        if parts[:2] not in (("servegrid", "frameworks"), ("servegrid", "hosting")) and not of_format:
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


def loaded_by(names: list[str]) -> set[str]:
    """The modules that a fresh process has loaded after these imports."""
    done = subprocess.run([sys.executable, "-c", IMPORT, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_library_imports_no_framework_and_no_prefect() -> None:
    names = [name for name in modules("servegrid") if not name.startswith("servegrid.cli")]
    loaded = loaded_by(names)
    assert set(names) <= loaded
    assert len(names) > 10
    assert loaded.isdisjoint({*FRAMEWORKS, "prefect"})


def test_spec_is_read_with_pydantic_and_yaml_alone() -> None:
    loaded = loaded_by(["servegrid.domain.spec", "servegrid.plan.matrix"])
    assert loaded.isdisjoint({*FRAMEWORKS, "prefect", "numpy", "polars", "tritonclient"})


def test_nothing_imports_a_framework_but_the_children() -> None:
    names = modules("servegrid", "tasks", "flows")
    loaded = loaded_by(names)
    assert {"flows.cell", "tasks.performance"} <= set(names) <= loaded
    assert loaded.isdisjoint(FRAMEWORKS)


def test_modules_are_short() -> None:
    paths = [p for folder in ("servegrid", "tasks", "flows", "models") for p in (ROOT / folder).rglob("*.py")]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in paths}
    assert {name: n for name, n in lengths.items() if n > 300} == {}
    assert statistics.median(n for n in lengths.values() if n) < 100


def test_folders_have_few_modules() -> None:
    paths = [p for top in ("servegrid", "tasks", "flows") for p in (ROOT / top).rglob("[!_]*.py")]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in paths)
    assert {folder: n for folder, n in counts.items() if n > 15} == {}


def test_models_is_no_package_that_could_hide_a_hubs() -> None:
    assert not list((ROOT / "models").glob("__init__.py"))
    assert not list((ROOT / "models").glob("*/__init__.py"))
