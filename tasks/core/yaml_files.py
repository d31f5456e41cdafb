"""Reading the project's YAML files as values, with errors that name file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from tasks.core.errors import UserError
from tasks.core.values import Value

SpecT = TypeVar("SpecT", bound=Value)


def load_yaml(path: Path, kind: type[SpecT]) -> SpecT:
    """Read one YAML file as `kind`.

    Raises:
        UserError: not readable, not YAML, or a key or type is wrong: file, key, what was expected.
    """
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of keys, found {type(data).__name__}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, kind)}") from error


def explain(error: ValidationError, kind: type[Value]) -> str:
    """A pydantic error as `key: what was expected (found ...)`, entries parted by `; `."""
    entries = []
    for item in error.errors():
        where = ".".join(map(str, item["loc"])) or kind.__name__
        if item["type"] == "extra_forbidden":
            entries.append(f"{where}: no such key; take it out or correct its spelling")
        elif item["type"] == "missing":
            entries.append(f"{where}: this key is required")
        else:
            found = "" if isinstance(item["input"], dict) else f" (found {item['input']!r})"
            entries.append(f"{where}: {item['msg']}{found}")
    return "; ".join(entries)
