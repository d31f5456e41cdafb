"""Nothing is run by a shell, and nothing listens but on loopback."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import local_server
from servegrid.domain.root import ROOT
from servegrid.host import proc
from servegrid.store.site import Site

SHELLS = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    "asyncio.create_subprocess_shell",
}
FOLDERS = ("flows", "tasks", "servegrid", "models", "bench", "docs")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.fault(
    "Security", "no program is started by a shell's string", what="a name that a shell would run"
)
def test_no_program_is_started_by_a_string() -> None:
    assert len(FILES) > 150
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            assert name not in SHELLS, f"{path}:{node.lineno}"
            assert not any(word.arg == "shell" for word in node.keywords), f"{path}:{node.lineno}"


def listening_of(process: psutil.Process) -> list[Any]:
    """The sockets on which a process listens; a process that has just ended has none."""
    try:
        return [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    except psutil.AccessDenied:  # the kernel shows a zombie's files to root only
        if process.status() != psutil.STATUS_ZOMBIE:
            raise
    except psutil.NoSuchProcess:
        pass
    return []


@pytest.mark.fault("Security", "it listens on loopback only", what="Prefect's server of a command")
def test_prefects_server_listens_on_loopback_only(tmp_path: Path, wait_for: Any) -> None:
    def listening() -> list[Any]:
        # The kernel's table may miss a socket while others open and close: then it is read again.
        below = psutil.Process().children(recursive=True)
        found = [connection for process in below for connection in listening_of(process)]
        return found if port in {c.laddr.port for c in found} else []

    site = Site.model_construct(home=tmp_path)
    with local_server.running(tmp_path / "log", local_server.settings(site)) as url:
        port = int(url.removesuffix("/api").rpartition(":")[2])
        found = wait_for(listening, 30)
    assert {c.laddr.ip.removeprefix("::ffff:") for c in found} == {"127.0.0.1"}


SESSION = """
import sys, time
import onnxruntime
from onnx import TensorProto as T, helper
x, y = (helper.make_tensor_value_info(name, T.FLOAT, [1]) for name in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnxruntime.InferenceSession(model.SerializeToString())
time.sleep(0.5)
"""


@pytest.mark.fault("Security", "it sends nothing", what="ONNX Runtime's telemetry in a child of ours")
def test_onnx_runtime_reports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it does, it keeps the file `.ses` in the folder for temporary files."""
    for name in set(os.environ) - {"PATH", "LD_LIBRARY_PATH"}:  # where one names a CI system it does not
        monkeypatch.delenv(name)
    for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME"):  # a device id lies in the cache of the home
        monkeypatch.setenv(name, str(tmp_path))
    words = [sys.executable, "-c", SESSION]
    proc.run(words, log_path=tmp_path / "log", timeout_s=60)
    assert not (tmp_path / ".ses").exists()
    subprocess.run(words, check=True, timeout=60)
    if not (tmp_path / ".ses").exists():
        pytest.skip("left as it is, ONNX Runtime reports nothing here either")
