"""Flags of files in the published style."""

from __future__ import annotations

import argparse
import sys
from types import ModuleType

import pytest

from servegrid.frameworks import published


def module_with_flags() -> ModuleType:
    module = ModuleType("model")

    def update_argparser(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--hidden-units", type=int, required=True)
        parser.add_argument("--rate", type=float, default=0.5)
        parser.add_argument("--sizes", type=int, nargs="+", default=[1])
        parser.add_argument("--kind", choices=["a", "b"], default="a")
        parser.add_argument("--cpu", action="store_true")
        parser.add_argument("--no-amp", dest="amp", action="store_false")
        parser.add_argument("--fuse", action=argparse.BooleanOptionalAction, default=True)

    module.update_argparser = update_argparser  # type: ignore[attr-defined]
    module.__file__ = "model.py"
    return module


def test_flags_have_the_defaults_and_types_of_the_parser() -> None:
    known = {"hidden_units": 8, "other": "kept"}
    assert published.flags(module_with_flags(), known) == {
        "hidden_units": 8, "rate": 0.5, "sizes": [1], "kind": "a", "cpu": False, "amp": True, "fuse": True,
        "other": "kept",
    }  # fmt: skip


def test_parameters_are_values_of_the_flags() -> None:
    known = {"hidden_units": "8", "rate": -1, "sizes": "2 3", "cpu": True, "amp": False, "fuse": False}
    found = published.flags(module_with_flags(), known)
    assert found == {
        "hidden_units": 8, "rate": -1.0, "sizes": [2, 3], "kind": "a", "cpu": True, "amp": False,
        "fuse": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "named"),
    [
        ({}, "required: --hidden-units.*--param"),
        ({"hidden_units": "many"}, "invalid int value: 'many'"),
        ({"hidden_units": 1, "kind": "c"}, "invalid choice: 'c'"),
    ],
)
def test_wrong_flags_are_refused(known: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        published.flags(module_with_flags(), dict(known))


def test_only_the_toolkit_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.modules.get("triton")
    for name in ("triton.deployment_toolkit.core", "deployment_toolkit.core"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    published.offer_toolkit()
    core = sys.modules.pop("triton.deployment_toolkit.core")
    sys.modules.pop("deployment_toolkit.core")
    assert core.Precision("fp16").value == str(core.Precision.FP16)
    assert not hasattr(core.BaseMetricsCalculator, "update")
    assert sys.modules.get("triton") is before
