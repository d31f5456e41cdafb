"""Rules for names and for other text from outside."""

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
            f"a name has up to {LONGEST_NAME} letters, digits, '.', '_' and '-', and does not begin with '.' "
            "or '-'"
        )
    return given


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
