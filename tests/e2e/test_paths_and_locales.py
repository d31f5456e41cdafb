"""Everything at a path with a space and letters beyond ASCII, under locales that do not know them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ONE = (
    *("--model", "tiny_mlp", "--format", "onnx", "--precision", "fp32", "--max-batch-size", "2"),
    *("--max-concurrency", "1", "--window-s", "0.3", "--request-count", "10"),
)


@pytest.mark.check
@pytest.mark.parametrize("locale", ["C", "tr_TR.UTF-8"])
@pytest.mark.fault(
    "Paths and locales", "the sweep passes, with its report", what="a space and umlauts in every path, locale"
)
def test_sweep_at_a_path_with_a_space_and_umlauts(
    locale: str,
    make_command_in: Callable[..., Any],
    make_plugins: Callable[[Path], Path],
    link_tools: Callable[[Path], None],
    tmp_path: Path,
    happened: Any,
) -> None:
    root = tmp_path / "Prüf stand"
    home = root / "home"
    home.mkdir(parents=True)
    link_tools(home)
    kept = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL" and not k.startswith("LC_")}
    command = make_command_in(kept, make_plugins(root / "models"))
    for name in ("home", "results", "sources", "models"):
        command.env[f"SERVEGRID_{name.upper()}"] = str(root / name)
    command.env.update(LC_ALL=locale, LANG=locale)
    code, output = command.run("sweep", *ONE)
    assert code == 0, output
    (campaign,) = (root / "results").iterdir()
    assert (campaign / "report.html").is_file()
    assert '"passed"' in (campaign / "rows.jsonl").read_text() or "unstable" in output
    happened("the sweep passes")
