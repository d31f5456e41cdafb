"""Rules for names, texts, numbers and lists from outside. A number is finite, and never true or false."""

from __future__ import annotations

import math
import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

LONGEST_NAME = 64
LONGEST_TEXT = 4096  # Linux, PATH_MAX
LONGEST_PART = 255  # Linux, NAME_MAX, in bytes


def _name(given: str) -> str:
    if len(given) > LONGEST_NAME or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", given):
        raise ValueError(
            f"a name has up to {LONGEST_NAME} letters, digits, '.', '_' and '-', and does not begin with '.' "
            "or '-'"
        )
    return given


def _tensor_name(given: str) -> str:
    check_text(given, path=False)
    if len(given) > LONGEST_PART or given != given.strip() or ".." in given.split("/"):
        raise ValueError(
            f"a tensor's name has up to {LONGEST_PART} characters, no space around it and no '..' between '/'"
        )
    return given


TensorName = Annotated[str, AfterValidator(_tensor_name)]
"""The name of an input or output: Triton, NumPy's archives and files of samples are to take it."""

Name = Annotated[str, AfterValidator(_name)]
"""A name that becomes part of the names of cells, files, folders and Triton models."""


def check_text(given: str, *, path: bool = True) -> None:
    """Raises ValueError if an option cannot have this text; a `path` must also be short enough."""
    if not given.strip():
        raise ValueError("it is empty: leave the option out, or give it a value")
    if not given.isprintable():
        raise ValueError("it has an unprintable character: remove it")
    longest = max(len(part.encode()) for part in given.split("/"))
    if path and (len(given.encode()) > LONGEST_TEXT or longest > LONGEST_PART):
        raise ValueError(f"it is too long: at most {LONGEST_TEXT} bytes, {LONGEST_PART} between two '/'")


LARGEST_INT32 = 2**31 - 1
"""Sizes, counts and instances are int32 in Triton's model_config.proto."""
LARGEST_INT64 = 2**63 - 1
LONGEST_S = 7 * 24 * 3600
NEWEST_OPSET = 28
"""Of ONNX 1.23 (`onnx.defs.onnx_opset_version()`)."""

Item = TypeVar("Item")


def _number(given: object) -> object:
    if isinstance(given, bool):
        raise ValueError("expected a number, not true or false")
    return given


def _text(given: str) -> str:
    check_text(given, path=False)
    return given


def _unique(given: tuple[Item, ...]) -> tuple[Item, ...]:
    for entry in given:
        if given.count(entry) > 1:
            raise ValueError(f"{entry!r} stands there twice")
    return given


def _split(given: object) -> object:
    if isinstance(given, str):
        return given.split(",")
    return (given,) if isinstance(given, int) else given  # options of earlier versions hold one number


def _finite(given: Item) -> Item:
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError("expected a finite number")
    return given


def _argument(given: str) -> str:
    if not given.isidentifier():
        raise ValueError("expected a name that an argument of Python may have")
    return given


Number = BeforeValidator(_number)
Count = Annotated[int, Number, Field(ge=1, le=LARGEST_INT32)]
CountList = Annotated[tuple[Count, ...], BeforeValidator(_split), AfterValidator(_unique)]
"""Counts, or a text of counts with commas between them."""
CountOrZero = Annotated[int, Number, Field(ge=0, le=LARGEST_INT32)]
Bytes = Annotated[int, Number, Field(ge=1, le=LARGEST_INT64)]
Opset = Annotated[int, Number, Field(ge=1, le=NEWEST_OPSET)]
WholeSeconds = Annotated[int, Number, Field(ge=1, le=LONGEST_S)]
Seconds = Annotated[float, Number, Field(gt=0, le=LONGEST_S)]
Finite = Annotated[float, Number, Field(allow_inf_nan=False)]
Positive = Annotated[float, Number, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Number, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Number, Field(gt=0, le=1)]
Dimension = Annotated[int | str, Number]
"""An axis of a shape: a number, or the name of a parameter."""
Text = Annotated[str, AfterValidator(_text)]
Argument = Annotated[str, AfterValidator(_argument)]
FiniteScalar = Annotated[bool | int | float | str, AfterValidator(_finite)]
Unique = AfterValidator(_unique)
"""Of a tuple: no entry twice."""
