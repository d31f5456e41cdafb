"""Settings of ONNX Runtime's CUDA provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

IMAGES = """
import json, sys
from pathlib import Path
from servegrid.formats.onnx.session import for_images
folder, found = Path(sys.argv[1]), []
for dtype, rank in (("float16", 4), ("float32", 4), ("float16", 5), ("float16", 2)):
    interface = {"inputs": [{"name": "x", "dtype": dtype, "shape": [-1] * rank}], "outputs": []}
    (folder / "interface.json").write_text(json.dumps(interface))
    found.append(for_images(folder))
print(json.dumps(found))
"""


def test_only_fp16_images_run_channels_last(run_python: Any, tmp_path: Path) -> None:
    (settings, disabled), *others = json.loads(run_python(IMAGES, tmp_path))
    assert settings["prefer_nhwc"] == "1"
    assert disabled
    assert others == [[{}, []]] * 3
