"""The served model has less memory than its largest batch wants: a real limit of the process that runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import InfeasibleError
from servegrid.domain.values import ArtifactRef, Serving
from servegrid.formats.repository import model_config
from servegrid.formats.runtime_files import MODEL as MODEL_FILE
from servegrid.host.memory import has_ended
from servegrid.servers.memory_fit import check_fit
from servegrid.store.build import Workplace
from tasks.configure import Configured
from tasks.deploy import deploy

SERVING = Serving(batching="dynamic", max_batch_size=16, load_timeout_s=60)
ROW = 1 << 24
"""Floats that each sample is spread over: 64 MB."""
PLACE = "        self._inputs = [entry"
"""Of the hosted runtime's code: ONNX Runtime is imported by then, and no model loaded."""
LIMIT = """
        import resource
        (line,) = (l for l in open("/proc/self/status") if l.startswith("VmSize:"))
        most = int(line.split()[1]) * 1024 + ({more} << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
"""


@pytest.fixture
def deployed(
    server: Any, interface: Any, onnx_artifact: Any, tmp_path: Path, site: Any
) -> Callable[[int], Any]:
    """Deploy a model whose process may take so many MB more than it has when it is about to load."""
    io = interface([("x", "float32", (-1, 1))], [("y", "float32", (-1, 1))])
    nodes = [("Expand", ["x", "shape"], ["h"], {}), ("ReduceMax", ["h"], ["y"], {"axes": [1]})]
    artifact = onnx_artifact(io, nodes, {"shape": np.array([1, ROW])})
    samples = tmp_path / "store" / "samples"
    samples.mkdir(parents=True)
    x = np.arange(20, dtype=np.float32)[:, None]
    np.savez(samples / "samples.npz", allow_pickle=False, **{"x/x": x})

    def run(more: int) -> Any:
        name = f"hungry_{more}"
        server.write(name, artifact, io, serving=SERVING)
        code = server.repository / name / "1" / MODEL_FILE
        text = code.read_text()
        assert text.count(PLACE) == 1
        code.write_text(text.replace(PLACE, LIMIT.format(more=more).lstrip("\n") + PLACE))
        config = json_format.MessageToJson(
            model_config(name, "onnx", SERVING, io), preserving_proto_field_name=True
        )
        configured = Configured(repository=server.repository, model=name, static=config, dynamic=config)
        at = Workplace(
            site=site.model_copy(update={"home": tmp_path}),
            plugin=tmp_path,
            logs=tmp_path,
            profile="deploy",
            cell=name,
            timeout_s=60,
        )
        ref = ArtifactRef(digest="", path="samples", size=0)
        try:
            return deploy.fn(server.running, configured, SERVING, ref, at, (1, 2, 4, 8, 16))
        finally:
            server.client.unload_model(name)

    return run


def test_largest_batch_that_fits_is_found(deployed: Callable[[int], Any]) -> None:
    with pytest.raises(InfeasibleError, match=r"batch 16.*--max-batch-size \d") as ended:
        deployed(700)
    assert ended.value.largest_batch in (2, 4, 8)


def test_model_too_large_to_load_is_infeasible(deployed: Callable[[int], Any]) -> None:
    with pytest.raises(InfeasibleError, match="out of memory") as ended:
        deployed(1)
    assert ended.value.largest_batch == 0


@pytest.mark.parametrize(("room", "largest"), [(16, None), (15, 8), (4, 4), (3, 2), (1, 1), (0, 0)])
def test_sizes_are_bisected(room: int, largest: int | None) -> None:
    tried = []

    def infer(size: int) -> None:
        tried.append(size)
        if size > room:
            raise InferenceServerException("bad_alloc")

    if largest is None:
        check_fit(infer, (1, 2, 4, 8, 16))
        assert tried == [16]
    else:
        with pytest.raises(InfeasibleError) as ended:
            check_fit(infer, (1, 2, 4, 8, 16))
        assert ended.value.largest_batch == largest
        assert len(tried) <= 4


def test_other_errors_are_not_of_memory() -> None:
    def infer(size: int) -> None:
        raise InferenceServerException("unexpected shape")

    with pytest.raises(InferenceServerException, match="unexpected shape"):
        check_fit(infer, (1, 2))


@pytest.mark.parametrize(
    "message",
    [
        "MemoryError: ",
        "std::bad_alloc",
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "Failed to allocate memory for requested buffer of size 1073741824",
        "ResourceExhaustedError: OOM when allocating tensor",
        "CUDA failure 2: out of memory",
        "OutOfMemory (no further information)",
    ],
)
def test_frameworks_words_for_the_end_of_memory_are_known(message: str) -> None:
    assert has_ended(message)
    assert not has_ended("the memory format of x is wrong")
