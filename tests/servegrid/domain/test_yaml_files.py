"""Bad YAML of every kind: one line that says where and what, and never anything but a `UserError`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from servegrid.domain.errors import UserError
from servegrid.domain.profile import GpuProfile
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import LARGEST_BYTES, load_yaml

BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

WRONG = {
    "tab": (b"name:\n\ttoy: 1", "found character '\\t'"),
    "unclosed": (b"name: [1, 2", "expected ',' or ']'"),
    "a key twice": (b"name: toy\nname: joy", "key 'name' stands there twice"),
    "a nested key twice": (b"name: {x: 1, y: 2, x: 3}", "key 'x' stands there twice"),
    "bomb": (BOMB.encode(), "alias *a: write the value out"),
    "an anchor of itself": (b"name: &a [*a]", "alias *a"),
    "unknown alias": (b"name: *missing", "alias *missing"),
    "binary": (bytes(range(128, 256)), "cannot be read"),
    "NUL": (b"name: \x00", "special characters are not allowed"),
    "UTF-16": ("name: toy".encode("utf-16"), "cannot be read"),
    "python object": (b"name: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
    "own tag": (b"name: !mine toy", "could not determine a constructor for the tag '!mine'"),
    "two documents": (b"name: toy\n---\nname: joy", "expected a single document"),
    "no such day": (b"name: 2020-99-99", "month must be in 1..12"),
    "deep": (b"name: " + b"[" * 5000, "nested too deep"),
    "huge": (b"# " + b"x" * LARGEST_BYTES, "this is no file of settings"),
    "a list as key": (b"? [1, 2]\n: toy", "unhashable key"),
    "merge of a word": (b"<<: toy", "expected a mapping"),
    "empty": (b"", "expected a mapping of keys, found NoneType"),
    "only a comment": (b"# toy", "expected a mapping of keys, found NoneType"),
    "number": (b"42", "expected a mapping of keys, found int"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.fault("Inputs: YAML", "one line that names the file, the line and what is wrong")
def test_a_file_that_is_no_mapping_of_settings(kind: str, tmp_path: Path, happened: Any) -> None:
    text, named = WRONG[kind]
    path = tmp_path / "model.yaml"
    path.write_bytes(text)
    with pytest.raises(UserError) as caught:
        load_yaml(path, ModelSpec)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert named in message
    assert "\n" not in message
    happened(message)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("yaml") / "it.yaml"


def message_of(path: Path, kind: type[Value]) -> str:
    """The error that reading gives, or "" where the file can be used; any other exception is a defect."""
    try:
        load_yaml(path, kind)
    except UserError as error:
        return str(error)
    return ""


@given(text=st.binary(max_size=200))
@settings(deadline=None, max_examples=50)
def test_any_bytes_end_in_one_line(text: bytes, scratch: Path) -> None:
    scratch.write_bytes(text)
    assert "\n" not in message_of(scratch, GpuProfile)


@given(data=st.dictionaries(st.sampled_from([*ModelSpec.model_fields, "x\ny"]), VALUES, max_size=6))
@settings(deadline=None, max_examples=50)
def test_any_values_under_a_models_keys_end_in_one_short_line(data: dict[str, Any], scratch: Path) -> None:
    scratch.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    message = message_of(scratch, ModelSpec)
    assert message, "a spec needs more than these"
    assert "\n" not in message


def test_a_long_wrong_value_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump({"name": ["x" * 1000] * 1000, "y" * 1000: 1}))
    assert len(message_of(path, ModelSpec)) < 1500
