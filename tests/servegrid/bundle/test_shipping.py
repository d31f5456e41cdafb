"""The image and the manifest of a bundle; tests/image builds the image and sends its server a request."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from servegrid.bundle.image import write_image
from servegrid.bundle.kubernetes import image_name, write_manifest
from servegrid.campaign.results import Row

SCHEMA = "kubernetes-validate==1.37.0"
INSTALLED = {name: importlib.metadata.version(name) for name in ("onnx", "onnxruntime")}
CPU: Row = {
    "cell": "My_net-file-onnx-fp32",
    "model": "my_net",
    "format": "onnx",
    "server": "embedded",
    "triton_release": "24.10",
    "versions": json.dumps(INSTALLED | {"numpy": "1"}),
    "environment": '{"cores": 6, "python": "3.12.4"}',
    "dynamic": '{"device_kind": "cpu", "load_timeout_s": 62}',
    "server_peak_bytes": 800 * 2**20,
}
GPU = CPU | {"dynamic": '{"device_kind": "gpu", "load_timeout_s": 60}', "server_peak_bytes": None}


def image(folder: Path, row: Row) -> tuple[str, list[str]]:
    """The Dockerfile, and the lines of requirements.txt."""
    write_image(folder, row)
    return (folder / "Dockerfile").read_text(), (folder / "requirements.txt").read_text().splitlines()


def manifest(folder: Path, row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Deployment and the Service."""
    write_manifest(folder, row)
    deployment, service = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    return deployment, service


def test_image_of_the_embedded_server_has_its_wheel_and_python_and_every_library_locked(
    tmp_path: Path,
) -> None:
    dockerfile, wheels = image(tmp_path, CPU)
    for part in ("BASE=python:3.12-slim\n", "nvidia-pytriton==", "stubs/3.12/", "USER 10001\n", "/models"):
        assert part in dockerfile
    assert "pip" not in dockerfile[dockerfile.index("CMD ") :]
    locked = dict(line.split("==") for line in wheels)
    assert locked.items() >= INSTALLED.items()
    for needed in ("numpy", "flatbuffers", "protobuf"):
        assert locked[needed] == importlib.metadata.version(needed)


def test_library_of_another_version_than_here_has_its_pin_alone(tmp_path: Path) -> None:
    _, wheels = image(tmp_path, CPU | {"versions": '{"onnxruntime": "1.2+local"}'})
    assert {line.partition("==")[0] for line in wheels} == {"numpy", "onnxruntime"}
    assert "onnxruntime==1.2" in wheels


def test_image_of_nvidias_server_is_based_on_its_release(tmp_path: Path) -> None:
    dockerfile, wheels = image(tmp_path, GPU | {"server": "docker"})
    assert "tritonserver:24.10-py3\n" in dockerfile
    assert f"onnxruntime-gpu=={INSTALLED['onnxruntime']}" in wheels
    assert '"tritonserver", "--model-repository=/models"' in dockerfile


def test_manifest_has_tritons_probes_and_the_measured_resources(tmp_path: Path) -> None:
    deployment, service = manifest(tmp_path, CPU)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")
    }
    assert paths == {
        "startup": "/v2/health/ready", "liveness": "/v2/health/live", "readiness": "/v2/health/ready",
    }  # fmt: skip
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 62
    memory = f"{800 * 5 // 4 + 1024}Mi"
    assert container["resources"] == {
        "requests": {"memory": memory, "cpu": "6"},
        "limits": {"memory": memory},
    }
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {
        p["name"] for p in container["ports"]
    }


def test_gpu_cell_is_limited_to_one_gpu_and_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    deployment, _ = manifest(tmp_path, GPU)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {}, "limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize("cell", ["My_net", "7net", "_x-", "a" * 62 + "-b", "ä"])
def test_names_are_labels_of_kubernetes(cell: str) -> None:
    name = image_name(CPU | {"cell": cell})
    assert 0 < len(name) <= 63
    assert name[0].isalpha() and name[-1].isalnum()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.check
def test_manifest_is_valid_by_kubernetes_own_schema(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    validate = [str(programs / "kubernetes-validate"), "--strict"]
    subprocess.run([str(programs / "pip"), "install", "--quiet", SCHEMA], check=True)
    for name, row in {"cpu": CPU, "gpu": GPU}.items():
        (folder := tmp_path / name).mkdir()
        manifest(folder, row)
        subprocess.run(
            [str(programs / "kubernetes-validate"), "--strict", "kubernetes.yaml"], cwd=folder, check=True
        )
        text = (folder / "kubernetes.yaml").read_text()
        (folder / "wrong.yaml").write_text(text.replace("readinessProbe", "readynessProbe"))
        assert subprocess.run([*validate, "wrong.yaml"], cwd=folder, capture_output=True).returncode != 0
