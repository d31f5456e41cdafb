"""Environments that a profile names: the versions in them, and the reasons why one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.profile import GpuProfile, Image
from servegrid.store.other_environment import check, versions_in

HERE = Path(sys.prefix)


def test_versions_are_those_of_the_environment() -> None:
    assert versions_in(HERE, ("numpy", "no-such-distribution")) == {
        "no-such-distribution": "absent",
        "numpy": np.__version__,
    }
    check(HERE, ("numpy",))


def test_missing_distributions_are_named() -> None:
    with pytest.raises(UnsupportedError, match=rf"{HERE}.*: no-such-distribution$"):
        check(HERE, ("numpy", "no-such-distribution"))


def test_folder_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"{tmp_path}/bin/python"):
        check(tmp_path, ())
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 5\n")
    python.chmod(0o755)
    with pytest.raises(UnsupportedError, match=r"bin/python.*exit status 5"):
        check(tmp_path, ())
    python.write_text("""#!/bin/sh\necho '{"python": [3, 8], "installed": {}}'\n""")
    with pytest.raises(UnsupportedError, match=r"bin/python.*3\.8.*3\.11"):
        check(tmp_path, ())


def test_profile_wants_whole_paths(profile: GpuProfile) -> None:
    data = profile.model_dump() | {"environments": {"tf-trt": "venv"}}
    wrong = "tf-trt.*{image: NAME}.*venv"
    with pytest.raises(ValidationError, match=wrong):
        GpuProfile.model_validate(data)


def test_profile_may_name_an_image(profile: GpuProfile) -> None:
    data = profile.model_dump() | {"environments": {"tf-trt": {"image": "tf:1"}, "onnx": "/opt/onnx"}}
    found = GpuProfile.model_validate(data)
    assert found.environments == {"tf-trt": Image(image="tf:1"), "onnx": Path("/opt/onnx")}
    assert GpuProfile.model_validate_json(found.model_dump_json()) == found
    with pytest.raises(ValidationError, match=r"environments\.tf-trt\.image\.imgae\n"):
        GpuProfile.model_validate(data | {"environments": {"tf-trt": {"imgae": "tf:1"}}})
