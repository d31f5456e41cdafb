"""Every option, and every field of model.yaml and of a profile, with a value of a wrong type, one that is out
of range, and none: one line that names file and field, exit code 2. The fields are those of the schemas, so a
new one is tried, too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from servegrid.domain.profile import GpuProfile
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Value
from servegrid.plan.options import SweepOptions, _flag

Run = Callable[..., tuple[int, str]]
MODEL = """
name: toy
description: a toy
framework: torch
requires: [torch]
opset: 17
inputs: [{name: x, dtype: float32, shape: [batch, 4]}]
outputs: [{name: y, dtype: float32, shape: [batch, 3]}]
formats:
  onnx: {export: onnx, precisions: [fp32], accelerators: [none], unsupported: a reason}
tolerances:
  fp32:
    {absolute: 0.001, relative: 0.1, cosine: 0.9, agreement: 0.9,
     outputs: {y: {absolute: 0.1, relative: 0.1, cosine: 0.9, agreement: 0.9}}}
variants:
  tiny:
    parameters: {depth: 3}
    sources:
      - file: weights.npy
        published: somewhere
        content: weights
        download: w.zip
        size: 9
        digest: md5:00000000000000000000000000000000
        commands: [unzip w.zip]
    samples: 100
    step_timeout_s: 600
    convert:
      workspace_bytes: 1000000
      shapes: {x: {min: [1, 4], opt: [4, 4], max: [8, 4]}}
      tolerance: {absolute: 0.1, relative: 0.1}
      onnx:
        optimize: {model_type: bert, num_heads: 2, hidden_size: 8, fused: {Attention: 1}}
        int8: {samples: 4, keep_float: [Softmax]}
    serving:
      {max_batch_size: 8, preferred_batch_sizes: [4], max_queue_delay_us: 1, instances: [1], protocol: grpc,
       cuda_graph: false, warm_up: false, load_timeout_s: 60}
    offline:
      {shared_memory: system, input_data: samples, published_input_data: random, request_count: 50,
       window_s: 1.0, warm_up: true, batch_sizes: [1]}
    online:
      {shared_memory: system, input_data: samples, published_input_data: random, request_count: 50,
      window_s: 1.0, warm_up: true, client_batch: 1,
       concurrency: [2]}
    metric:
      {name: accuracy, better: higher, threshold: 0.9, drop: {fp32: 0.001}, output: y, labels: labels.npz,
       made_up: false}
"""
PROFILE = """
name: card
description: a card
device_kind: cpu
device_names: [Card 9000]
compute_capability: '9.0'
memory_gb: 80
pool: gpu-card
precisions: [fp32]
peak: {source: its maker, memory_gb_s: 3000.0, tflops: {fp32: 60}}
unsupported: [{format: trt, precision: fp32, reason: none here}]
server:
  {name: remote, url: 'grpcs://h:8001', ca_file: ca.pem, headers_file: headers, triton_release: '24.10',
   folder: /opt/triton, backends: /opt/backends, device_kind: cpu, cores_awake: false}
generator: client
environments: {tf-trt: {image: nvcr.io/x}}
"""
WRONG_BY_TYPE = {
    "string": "perhaps",
    "integer": 3,
    "boolean": True,
    "array": ["x"],
    "object": {"x": 1},
}


class Case(NamedTuple):
    """A field by its keys, and what it holds; `...` removes it."""

    keys: tuple[str | int, ...]
    value: Any

    @property
    def id(self) -> str:
        shown = "missing" if self.value is ... else repr(self.value)[:20]
        return f"{'.'.join(map(str, self.keys))}={shown}"

    def put(self, text: str) -> str:
        data = copy.deepcopy(yaml.safe_load(text))
        part = data
        for key in self.keys[:-1]:
            part = part[key]
        if self.value is ...:
            del part[self.keys[-1]]
        else:
            part[self.keys[-1]] = self.value
        return yaml.safe_dump(data)


def cases(kind: type[Value], text: str) -> list[Case]:
    schema = kind.model_json_schema()
    found = {case.id: case for case in _cases(schema, schema.get("$defs", {}), (), yaml.safe_load(text))}
    return list(found.values())


def _cases(node: Any, defs: Any, keys: tuple[str | int, ...], example: Any) -> Iterator[Case]:
    """What is wrong at a node of a JSON schema and below it; `example` is right there."""
    options = _options(node, defs)
    if keys:
        types = {str(option.get("type", "any")) for option in options}
        yield from (Case(keys, value) for value in _wrong(options, types))
    for option in options:
        if isinstance(example, dict) and "properties" in option:
            for name, below in option["properties"].items():
                assert name in example, f"the example lacks {(*keys, name)}"
                if name in option.get("required", ()):
                    yield Case((*keys, name), ...)
                yield from _cases(below, defs, (*keys, name), example[name])
        elif isinstance(example, dict) and "additionalProperties" in option:
            key = next(iter(example))
            if isinstance(option["additionalProperties"], dict):
                yield from _cases(option["additionalProperties"], defs, (*keys, key), example[key])
        elif isinstance(example, list) and "items" in option:
            yield from _cases(option["items"], defs, (*keys, 0), example[0])


def _options(node: Any, defs: Any) -> list[Any]:
    """The alternatives of a node, with what they refer to."""
    if "$ref" in node:
        return _options(defs[node["$ref"].rpartition("/")[2]], defs)
    several = node.get("anyOf") or node.get("oneOf")
    return [entry for option in several for entry in _options(option, defs)] if several else [node]


def _wrong(options: list[Any], types: set[str]) -> Iterator[Any]:
    number = bool(types & {"integer", "number"})
    for name, value in WRONG_BY_TYPE.items():
        if name not in types and not (name == "integer" and number):
            yield value
    if any("enum" in option or "const" in option for option in options):
        yield "nothing"
    if number and "string" not in types:
        yield from (float("nan"), float("inf"))
    if "integer" in types and "string" not in types:
        yield from (1.5, 2**63, 10**30)
    for option in options:
        low, high = option.get("minimum", option.get("exclusiveMinimum")), option.get("maximum")
        yield from (bound for bound in (low is not None and low - 1, high and high * 2) if bound)
        if option.get("minItems"):
            yield []


def one_line(run: Run, *words: str) -> str:
    code, output = run(*words)
    assert (code, len(output.splitlines())) == (2, 1), output[:2000]
    assert len(output) < 1500
    return output


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for profiles with the right model in it."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "model.yaml").write_text(MODEL)
    (tmp_path / "card.yaml").write_text(PROFILE)
    monkeypatch.setenv("SERVEGRID_PROFILES", str(tmp_path))
    return tmp_path


def test_the_examples_are_right(servegrid: Run, files: Path) -> None:
    (files / "card.yaml").write_text(Case(("server",), {"name": "embedded"}).put(PROFILE))
    code, output = servegrid("plan", "--model-dir", str(files / "toy"), "--profile", "card")
    assert code == 0, output


@pytest.mark.parametrize("case", cases(ModelSpec, MODEL), ids=lambda case: case.id)
def test_field_of_a_model(case: Case, servegrid: Run, files: Path) -> None:
    path = files / "toy" / "model.yaml"
    path.write_text(case.put(MODEL))
    said = one_line(servegrid, "plan", "--model-dir", str(files / "toy"), "--profile", "card")
    assert str(path) in said and str(case.keys[-1]) in said


@pytest.mark.parametrize("case", cases(GpuProfile, PROFILE), ids=lambda case: case.id)
def test_field_of_a_profile(case: Case, servegrid: Run, files: Path) -> None:
    path = files / "card.yaml"
    path.write_text(case.put(PROFILE))
    said = one_line(servegrid, "plan", "--model-dir", str(files / "toy"), "--profile", "card")
    assert str(path) in said and str(case.keys[-1]) in said


def wrong_options() -> list[tuple[str, str | None]]:
    """Options that are no text, with values that are wrong."""
    schema = SweepOptions.model_json_schema()
    found: list[tuple[str, str | None]] = []
    for name, node in schema["properties"].items():
        flag = _flag(name)
        alternatives = _options(node, schema.get("$defs", {}))
        alternatives += [entry for a in alternatives if "items" in a for entry in _options(a["items"], {})]
        types = {a.get("type") for a in alternatives}
        if types & {"integer", "number"}:
            values = ["many", "nan", "inf", "-1", "0", "1e300", "", "true"]
            values += ["1.5", "2147483648"] if "integer" in types else []
            values = [v for v in values if not ("array" in types and v == "1e300")]
            found += [(flag, value) for value in values]
        elif any("enum" in a for a in alternatives):
            found.append((flag, "nothing"))
        elif "boolean" in types:
            found.append((flag, "perhaps"))
        if "boolean" not in types:
            found.append((flag, None))
    return found


@pytest.mark.parametrize(("flag", "value"), wrong_options())
def test_option(flag: str, value: str | None, servegrid: Run, files: Path) -> None:
    said = one_line(servegrid, "plan", flag if value is None else f"{flag}={value}")
    assert flag in said or flag.strip("-").replace("-", "_") in said
