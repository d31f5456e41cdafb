"""`--set KEY=VALUE`: a field of model.yaml with another value, for one campaign."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from servegrid.domain.errors import UserError, unknown
from servegrid.domain.spec import ModelSpec, Variant
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import explain, parse_yaml
from servegrid.plan.spec_rules import RULES

Keys = tuple[str, ...]
"""The place of a field in model.yaml."""
NAMED = ("serving", "instances")
"""Of a variant: the number of instances is in the name of a cell already."""


def with_settings(spec: ModelSpec, variant: str, texts: tuple[str, ...]) -> tuple[ModelSpec, tuple[str, ...]]:
    """The spec with these fields of a variant, and the changes as KEY=JSON; the plan reports an unknown
    variant.

    A key is the end of a field's place in model.yaml: `max_batch_size`, `tolerances.fp16.absolute`.

    Raises:
        UserError: no field, or several, have that key, or model.yaml may not have such a value.
    """
    if not texts or variant not in spec.variants:
        return spec, ()
    before = spec.model_dump(mode="json")
    data = spec.model_dump(mode="json")
    known = dict(_fields_of(variant, before))
    places: set[Keys] = set()
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--set {text}: expected KEY=VALUE, as max_batch_size=32 or batch_sizes=1,8,32")
        keys = _resolve(key, text, known)
        if keys in places:
            raise UserError(f"--set {text}: {key} is set twice")
        places.add(keys)
        _put(data, keys, _value(value, known[keys]))
    try:
        found = ModelSpec.model_validate(data, context=RULES)
    except ValidationError as error:
        raise UserError(f"--set: {explain(error, ModelSpec)}") from error
    after = found.model_dump(mode="json")
    changed = [keys for keys in sorted(places) if _get(before, keys) != _get(after, keys)]
    of_variant = ("variants", variant)
    return found, tuple(
        f"{'.'.join(keys[2:] if keys[:2] == of_variant else keys)}={json.dumps(_get(after, keys))}"
        for keys in changed
        if keys != (*of_variant, *NAMED)
    )


def _fields_of(variant: str, data: dict[str, Any]) -> Iterator[tuple[Keys, Any]]:
    """The fields that may be set, each with its type: those of the variant but its parameters, which
    `--param` sets, the opset and the tolerances."""
    for name in ("opset", "tolerances"):
        yield from _below((name,), ModelSpec.model_fields[name].annotation, data[name])
    for name, field in Variant.model_fields.items():
        if name != "parameters":
            keys = ("variants", variant, name)
            yield from _below(keys, field.annotation, data["variants"][variant][name])


def _below(keys: Keys, kind: Any, data: Any) -> Iterator[tuple[Keys, Any]]:
    """A field, and the fields below it; those of a mapping are its possible keys, or those that it holds."""
    yield keys, kind
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    held = data if isinstance(data, dict) else {}
    for option in options:
        if inspect.isclass(option) and issubclass(option, Value):
            for name, field in option.model_fields.items():
                yield from _below((*keys, name), field.annotation, held.get(name))
        elif get_origin(option) is dict:
            key_kind, value_kind = get_args(option)
            names = get_args(key_kind) if get_origin(key_kind) is Literal else held
            for name in names:
                yield from _below((*keys, name), value_kind, held.get(name))


def _resolve(key: str, text: str, known: dict[Keys, Any]) -> Keys:
    """The field whose place ends with `key`; of several the one that is the least deep."""
    ends = [keys for keys in known if f".{'.'.join(keys)}".endswith(f".{key}")]
    if not ends:
        names = [".".join(keys[2:] if keys[0] == "variants" else keys) for keys in known]
        raise UserError(f"--set {text}: {unknown('field', key, names)}")
    least = min(map(len, ends))
    nearest = [keys for keys in ends if len(keys) == least]
    if len(nearest) > 1:
        listed = ", ".join(".".join(keys) for keys in nearest)
        raise UserError(f"--set {text}: several fields end with {key}; write one of {listed}")
    return nearest[0]


def _value(text: str, kind: Any) -> Any:
    """A YAML value; a list may be written with commas and without brackets."""
    if get_origin(kind) is tuple and not text.lstrip().startswith("["):
        return [_scalar(part) for part in text.split(",")]
    return _scalar(text)


def _scalar(text: str) -> Any:
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def _put(data: dict[str, Any], keys: Keys, value: Any) -> None:
    for key in keys[:-1]:
        if not isinstance(data.get(key), dict):
            data[key] = {}
        data = data[key]
    data[keys[-1]] = value


def _get(data: Any, keys: Keys) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data
