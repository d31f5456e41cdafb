"""The Kubernetes manifest of a hosted cell: a Deployment of its image, and a Service."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from servegrid.bundle.image import USER, device_kind
from servegrid.campaign.columns import parse_json
from servegrid.campaign.results import Row
from servegrid.servers.docker import PORTS

MANIFEST = "kubernetes.yaml"
PERIOD_S = 5
MEMORY_ROOM = 1.25
"""Times the largest memory of the server under the campaign's load."""
SHARED_MEMORY_MI = 1024
"""Triton's Python backend exchanges tensors in it; as in start-docker.sh."""
LOAD_TIMEOUT_S = 300
"""Where a row has no load timeout."""


def write_manifest(folder: Path, row: Row) -> None:
    """kubernetes.yaml of the cell of a row."""
    name = image_name(row)
    documents = (_deployment(name, row), _service(name))
    text = _HEAD.format(name=name) + yaml.safe_dump_all(documents, sort_keys=False)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def image_name(row: Row) -> str:
    """The cell's name as Kubernetes and registries take it: a letter, then up to 62 of a-z, 0-9, `-`."""
    name = re.sub(r"[^a-z0-9]+", "-", row["cell"].lower()).strip("-")
    return (name if name[:1].isalpha() else f"cell-{name}")[:63].rstrip("-")


def resources(row: Row) -> dict[str, dict[str, str | int]]:
    """Requests and limits, from what was measured: memory of the server, and the host's cores or one GPU."""
    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}
    if row["server_peak_bytes"] is not None:
        memory = math.ceil(row["server_peak_bytes"] * MEMORY_ROOM / 2**20) + SHARED_MEMORY_MI
        requests["memory"] = limits["memory"] = f"{memory}Mi"
    if device_kind(row) == "gpu":
        limits["nvidia.com/gpu"] = 1
    else:
        requests["cpu"] = str(parse_json(row["environment"])["cores"])
    return {"requests": requests, "limits": limits}


def _deployment(name: str, row: Row) -> dict[str, Any]:
    load_s = parse_json(row["dynamic"]).get("load_timeout_s") or LOAD_TIMEOUT_S
    container = {
        "name": "triton",
        "image": f"{name}:latest",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": kind, "containerPort": port} for kind, port in PORTS.items()],
        "startupProbe": _probe("ready") | {"failureThreshold": math.ceil(load_s / PERIOD_S)},
        "livenessProbe": _probe("live") | {"failureThreshold": 3},
        "readinessProbe": _probe("ready") | {"failureThreshold": 1},
        "resources": resources(row),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # in the container
    }
    shared = {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_MI}Mi"}
    pod = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER},
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": shared}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": _labels(name)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _labels(name)},
            "template": {"metadata": {"labels": _labels(name)}, "spec": pod},
        },
    }


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}


def _service(name: str) -> dict[str, Any]:
    ports = [{"name": kind, "port": port, "targetPort": kind} for kind, port in PORTS.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": _labels(name)},
        "spec": {"selector": _labels(name), "ports": ports},
    }


def _probe(state: str) -> dict[str, Any]:
    """A request to one of Triton's health endpoints."""
    request = {"path": f"/v2/health/{state}", "port": "http"}
    return {"httpGet": request, "periodSeconds": PERIOD_S, "timeoutSeconds": PERIOD_S}


_HEAD = """# docker build --tag {name}:latest .      then push it to where the cluster gets its images
# kubectl apply --filename kubernetes.yaml
# Resources are those of the campaign: the server's largest memory, and what it ran on.
"""
