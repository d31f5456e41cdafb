"""Reading the project's YAML files as values, with errors that name file and key."""

from __future__ import annotations

import re
import reprlib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from servegrid.domain.errors import UserError, nearest
from servegrid.domain.values import Value

SpecT = TypeVar("SpecT", bound=Value)

LARGEST_BYTES = 2**20
"""Settings are far smaller than this; a checkpoint given by mistake is refused unread."""
SHOWN = 80
"""Characters of a wrong key that an error shows."""


class _Loader(yaml.SafeLoader):
    """Safe YAML without duplicate keys, which hide mistakes, and without aliases, which nested make a small
    file a huge value."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"alias *{event.anchor}: write the value out", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                raise ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path, kind: type[SpecT], context: Any = None) -> SpecT:
    """Read one YAML file as `kind`.

    Raises:
        UserError: not readable, not YAML, or a key or type is wrong: file, key, what was expected.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UserError(f"{path}: over {LARGEST_BYTES // 2**20} MiB: not a file of settings")
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of keys, found {type(data).__name__}")
    try:
        return kind.model_validate(data, context=context)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, kind)}") from error


def dump_yaml(value: Value) -> str:
    """A value as YAML for people to read: short lists and mappings take one line, fields without a value
    none."""
    data = value.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; raises ValueError with the reason in one line."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # derived from the safe one
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("nested too deep") from None


def explain(error: ValidationError, kind: type[Value]) -> str:
    """A pydantic error as `key: what was expected (found ...)`, joined by `; `."""
    entries = []
    for item in error.errors():
        where = " ".join(".".join(map(str, item["loc"])).split())[:SHOWN] or kind.__name__
        if item["type"] == "extra_forbidden":
            entries.append(f"{where}: no such key; take it out or correct its spelling")
        elif item["type"] == "missing":
            entries.append(f"{where}: this key is required")
        else:
            found = "" if isinstance(item["input"], dict) else f" (found {reprlib.repr(item['input'])})"
            hint = ""
            if item["type"] == "literal_error" and isinstance(item["input"], str):
                hint = nearest(item["input"], re.findall("'(.+?)'", item["ctx"]["expected"]))
            near = f": {hint}" if hint else ""
            entries.append(f"{where}: {item['msg'].removeprefix('Value error, ')}{found}{near}")
    return "; ".join(entries)
