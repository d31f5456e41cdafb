"""TF-TRT, as far as it goes here: the conversion runs in the environment that a profile names, and there a
TensorFlow without TensorRT is refused by its own word."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.plugins import load_profile
from servegrid.domain.root import ROOT
from servegrid.host.environment import versions
from servegrid.store.build import build
from tasks import convert

pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another environment, with this one's distributions but for the project itself."""
    folder = tmp_path_factory.mktemp("environment") / "tf"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    paths = [p for p in sys.path if p.endswith("site-packages")]
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (purelib / "others.pth").write_text("\n".join(paths))
    return folder


def test_tensorflow_without_tensorrt_is_refused_where_it_runs(
    environment: Path, tiny_cell: Any, tmp_path: Path
) -> None:
    tiny = tiny_cell("resnet50", "tf-savedmodel")
    profile = load_profile(ROOT / "gpu_profiles", "h100").model_copy(
        update={"environments": {"tf-trt": environment}}
    )
    product = tiny.cell.product.model_copy(update={"format": "tf-trt", "accelerator": "trt"})
    environments = convert.environments(profile)
    request = convert.request(tiny.plugin, product, tiny.exported, environments=environments)
    assert request.libraries == versions(("tensorflow",))
    assert request.fields["shapes"]["input"]["max"][0] == tiny.cell.dynamic.max_batch_size
    at = tiny.at.model_copy(update={"logs": tmp_path, "environments": environments})
    with pytest.raises(UnsupportedError) as refused:
        build(request, at)
    assert f"the environment {environment} has TensorFlow" in str(refused.value)
    assert "has not been built with TensorRT support" in str(refused.value)
    assert not list((at.site.store.root / "scratch").glob(request.key))


def test_missing_environment_is_refused_before_anything_runs(tiny_cell: Any) -> None:
    tiny = tiny_cell("resnet50", "tf-savedmodel")
    product = tiny.cell.product.model_copy(update={"format": "tf-trt"})
    with pytest.raises(UnsupportedError, match="/nowhere/bin/python"):
        convert.request(tiny.plugin, product, tiny.exported, environments={"convert_tftrt": Path("/nowhere")})
