"""What a name may be made of, and any other text that comes from outside."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

LONGEST_NAME = 64
LONGEST_TEXT = 4096  # Linux, PATH_MAX
LONGEST_PART = 255  # Linux, NAME_MAX, in bytes


def _name(given: str) -> str:
    if len(given) > LONGEST_NAME or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", given):
        raise ValueError(
            f"a name has up to {LONGEST_NAME} letters, digits, '.', '_' and '-', begun by no '.' or '-'"
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
"""A name that stands in those of cells, files, folders and Triton's models."""


def check_text(given: str, *, path: bool = True) -> None:
    """Raises ValueError where a text of an option can be none or, where it may be a `path`, no path."""
    if not given.strip():
        raise ValueError("it is empty: leave the option out, or give it a value")
    if not given.isprintable():
        raise ValueError("it has a character that cannot be printed: take it out")
    longest = max(len(part.encode()) for part in given.split("/"))
    if path and (len(given.encode()) > LONGEST_TEXT or longest > LONGEST_PART):
        raise ValueError(f"it is too long: at most {LONGEST_TEXT} bytes, {LONGEST_PART} between two '/'")
