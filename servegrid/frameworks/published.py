"""Support for unchanged files that were written for the toolkit of NVIDIA's published deployments.

They import names of `triton.deployment_toolkit.core`, which only their own command lines use, and define
flags in `update_argparser(parser)`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

TOOLKIT = ("triton.deployment_toolkit", "deployment_toolkit")
"""The names of the package; the second where a file was run from inside its folder."""


class TensorSpec(NamedTuple):
    """A tensor's name, data type and shape."""

    name: str
    dtype: str
    shape: tuple[Any, ...]


class Model(NamedTuple):
    """A loaded model and its tensors' specs by name."""

    handle: Any
    precision: Any
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


class Parameter(Enum):
    """A choice that prints as it is written on a command line."""

    def __str__(self) -> str:
        return str(self.value)


class Precision(Parameter):
    """Of weights and arithmetic."""

    FP16 = "fp16"
    FP32 = "fp32"
    TF32 = "tf32"


class Format(Parameter):
    """Of a model's file."""

    TF_SAVEDMODEL = "tf-savedmodel"
    TF_TRT = "tf-trt"
    TF_ESTIMATOR = "tf-estimator"
    TF_KERAS = "tf-keras"
    ONNX = "onnx"
    TRT = "trt"
    TS_SCRIPT = "ts-script"
    TS_TRACE = "ts-trace"
    PYT = "pyt"


class Accelerator(Parameter):
    """Of a server's backend."""

    NONE = "none"
    AMP = "amp"
    CUDA = "cuda"
    TRT = "trt"


class BaseMetricsCalculator:
    """What their `MetricsCalculator` derives from: it has `update` and `metrics`, or the older `calc`."""


CORE: dict[str, Any] = {
    "DATALOADER_FN_NAME": "get_dataloader_fn",
    "GET_MODEL_FN_NAME": "get_model",
    "GET_SERVING_INPUT_RECEIVER_FN": "get_serving_input_receiver_fn",
    "GET_ARGPARSER_FN_NAME": "update_argparser",
    **{
        kind.__name__: kind
        for kind in (TensorSpec, Model, Parameter, Precision, Format, Accelerator, BaseMetricsCalculator)
    },
}
"""What `core` has."""


def offer_toolkit() -> None:
    """Let this process import the names of CORE.

    Only the full names are entered: an installed `triton`, PyTorch's compiler, stays what it is.
    """
    for package in TOOLKIT:
        name = f"{package}.core"
        if name not in sys.modules:
            module = ModuleType(name, "Names that published model files import.")
            vars(module).update(CORE)
            sys.modules[name] = module


def flags(module: ModuleType | None, known: dict[str, Any]) -> dict[str, Any]:
    """The known parameters, and the flags of the module's `update_argparser`, where it has one: with the
    parser's defaults, types and choices.

    Raises:
        ValueError: a required flag is not among the parameters, or a value is not what the flag takes.
    """
    if not hasattr(module, "update_argparser"):
        return known
    assert module is not None
    parser = _Parser(prog=str(module.__file__), add_help=False, allow_abbrev=False)
    module.update_argparser(parser)
    words: list[str] = []
    for action in parser._actions:
        if known.get(action.dest) is not None:
            words += _words(action, known[action.dest])
    return known | vars(parser.parse_args(words))


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would exit."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: update_argparser: {message}; give --param NAME=VALUE")


def _words(action: argparse.Action, value: Any) -> list[str]:
    """A flag as it stands on a command line; a switch only where its value is the one that it sets."""
    flag = list(action.option_strings[-1:])
    if isinstance(action, argparse.BooleanOptionalAction):
        return [action.option_strings[0] if value else action.option_strings[-1]]
    if action.nargs == 0:
        return flag if value == action.const else []
    if action.nargs is None or action.nargs == "?":
        return [f"{flag[0]}={value}"] if flag else [str(value)]
    return [*flag, *shlex.split(str(value))]
