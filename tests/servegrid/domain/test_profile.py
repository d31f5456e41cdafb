"""Wrong profiles: one line that names file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.domain.root import ROOT

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name that leads up": ({"name": "../../cpu"}, "name: a name has up to 64 letters"),
    "a pool of two lines": ({"pool": "gpu\nworker"}, "pool: a name has up to 64 letters"),
    "an unknown precision": ({"precisions": ["fp23"]}, "precisions.0: "),
    "an unknown format": ({"unsupported": [{"format": "onxx", "reason": "no"}]}, "unsupported.0.format: "),
    "a rule without a reason": ({"unsupported": [{"format": "onnx"}]}, "unsupported.0.reason: this key is"),
    "an unknown key": ({"precission": ["fp32"]}, "precission: no such key"),
    "no memory": ({"memory_gb": -1}, "memory_gb: "),
    "a wrong compute capability": ({"compute_capability": "nine"}, "compute_capability: "),
    "an environment somewhere": (
        {"environments": {"tf-trt": "here"}},
        "environments: tf-trt: the whole path",
    ),
    "a server without its URL": ({"server": {"name": "remote"}}, "server: server remote needs the url"),
    "a server by another protocol": (
        {"server": {"name": "remote", "url": "http://h:8000"}},
        "server.url: ",
    ),
    "a word for a list": ({"device_names": "A30"}, "device_names: "),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.fault("Inputs: profiles", "one line that names file and key", what="a profile with")
def test_wrong_profile(kind: str, tmp_path: Path, happened: Any) -> None:
    change, message = WRONG[kind]
    path = tmp_path / "cpu.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load((ROOT / "gpu_profiles" / "cpu.yaml").read_text()) | change))
    with pytest.raises(UserError) as caught:
        load_profile(tmp_path, "cpu")
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)
    happened(caught.value)
