"""The step that makes a model folder of a model file."""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError, unknown
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import TRITON_DTYPES, Format, Interface, Tensor, Value
from servegrid.domain.yaml_files import dump_yaml, explain
from servegrid.formats import FORMATS
from servegrid.frameworks.fields import ModelFileJob, Parameters
from servegrid.frameworks.file_plugin import TEMPLATE
from servegrid.frameworks.networks import FRAMEWORKS, Network

SAMPLES, MAX_BATCH = 64, 8
MOST_BYTES = 2**32
"""Of the random samples of an input."""
Axes = tuple[int, ...]


class Declared(Value):
    """A tensor as its file declares it: -1 is a free axis; None: the file does not declare it."""

    name: str
    dtype: str | None
    shape: Axes | None


class Reader(Protocol):
    """The module of a kind of file."""

    FILE: str
    """Name of the file in an artifact."""
    FORMATS: dict[Format, dict[str, Any]]
    """`formats` of its model.yaml."""

    def declared(self, path: Path, parameters: Parameters) -> tuple[list[Declared], list[Declared], int]:
        """Inputs, outputs, and the opset of its ONNX export; raises UnsupportedError."""

    def copy(self, path: Path, target: Path) -> None:
        """The file, complete, as `target`; raises UnsupportedError."""

    def open_network(self, path: Path, interface: Interface, parameters: Parameters) -> Network:
        """The file in its own framework."""


def read_model_file(job: ModelFileJob) -> None:
    """`model.yaml`, the Python files of `file_plugin`, and `data/` with the file and its samples.

    Raises:
        UnsupportedError: why the file, a shape or the samples cannot be used, in one line.
    """
    try:
        _read(job)
    except ValidationError as error:  # a name or an axis that no model of ours may have
        raise UnsupportedError(explain(error, ModelSpec)) from error


def _read(job: ModelFileJob) -> None:
    reader: Reader = importlib.import_module(FRAMEWORKS[job.fields.kind])
    samples = _samples(job.inputs["samples"]) if "samples" in job.inputs else None
    inputs, outputs, opset = reader.declared(job.inputs["file"], job.fields.parameters)
    resolved = resolve(inputs, job.fields.shapes, samples)
    for name in ("prepare.py", "dataloader.py"):
        shutil.copy(TEMPLATE / name, job.output / name)
    (data := job.output / "data").mkdir()
    reader.copy(job.inputs["file"], data / reader.FILE)
    x = samples or random_samples(resolved)
    np.savez(data / "samples.npz", allow_pickle=False, **x)
    interface, scales = _run(job, reader, resolved, outputs, x)
    spec = _spec(job, interface, reader.FORMATS, scales, opset, len(next(iter(x.values()))))
    (job.output / "model.yaml").write_text(dump_yaml(spec), encoding="utf-8")


def one_line(error: Exception) -> str:
    """An exception's message for the end of a sentence; of a long one its two ends."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:150]} ... {text[-150:]}"


def resolve(inputs: list[Declared], shapes: Mapping[str, Axes], samples: Arrays | None) -> tuple[Tensor, ...]:
    """Every input with its type and fixed axes, except that of the batch."""
    names = [tensor.name for tensor in inputs]
    for kind, given in (("--shape", shapes), ("--samples", samples or {})):
        for name in given:
            if name not in names:
                raise UnsupportedError(f"{kind}: {unknown('input', name, names)}")
    if not inputs:
        raise UnsupportedError("it has no inputs")
    if samples is not None:
        _check_samples(names, samples)
    found = tuple(_resolve(t, shapes.get(t.name), samples[t.name] if samples else None) for t in inputs)
    if len({tensor.shape[0] for tensor in found}) > 1:
        shapes_found = ", ".join(f"{t.name!r} {list(t.shape)}" for t in found)
        raise UnsupportedError(f"its inputs' first axes differ, so no axis counts samples: {shapes_found}")
    batch = _fixed(found)
    if batch and samples is not None and len(samples[names[0]]) % batch:
        raise UnsupportedError(
            f"--samples: the model takes batches of {batch} only: give a multiple of {batch}"
        )
    return found


def _fixed(inputs: tuple[Tensor, ...]) -> int:
    """The only batch size of the model; 0: any."""
    return max(int(inputs[0].shape[0]), 0)


def _resolve(tensor: Declared, given: Axes | None, sample: Any) -> Tensor:
    name, shape = tensor.name, tensor.shape
    wanted = given or (sample.shape if sample is not None else None)
    if shape is None and wanted is None:
        raise UnsupportedError(
            f"the file does not say the shape of input {name!r}; give --shape {name}=1,..."
        )
    if shape is None:
        assert wanted is not None
        shape = (-1,) * len(wanted)
    if not shape:
        raise UnsupportedError(f"input {name!r} is one number: it has no axis that counts samples")
    if 0 in shape:
        raise UnsupportedError(f"input {name!r} is {list(shape)}: an axis of 0 leaves nothing to serve")
    for kind, axes in (("--shape", given), ("--samples", sample.shape if sample is not None else None)):
        if axes is not None:
            _check_axes(f"{kind}: input {name!r}", shape, tuple(axes))
    if given and sample is not None and tuple(given[1:]) != sample.shape[1:]:
        raise UnsupportedError(
            f"--samples: {name!r} has {list(sample.shape[1:])}, --shape says {list(given[1:])}"
        )
    if wanted:
        shape = (shape[0], *wanted[1:])
    if -1 in shape[1:]:
        example = ",".join("1" if i == 0 else "?" if a == -1 else str(a) for i, a in enumerate(shape))
        raise UnsupportedError(f"input {name!r} has free axes; give --shape {name}={example} or --samples")
    dtype = tensor.dtype or (str(sample.dtype) if sample is not None else "float32")
    if sample is not None and str(sample.dtype) != dtype:
        raise UnsupportedError(f"--samples: {name!r} is {sample.dtype}, the model takes {dtype}")
    return _tensor("input", name, dtype, shape)


def _check_axes(where: str, shape: Axes, given: Axes) -> None:
    if len(shape) != len(given):
        raise UnsupportedError(
            f"{where} has {len(shape)} axes, {list(shape)}; {list(given)} has {len(given)}"
        )
    for want, have in zip(shape[1:], given[1:], strict=True):
        if want not in (-1, have):
            raise UnsupportedError(f"{where} is {list(shape)}; {list(given)} does not fit")


def _tensor(kind: str, name: str, dtype: str, shape: Axes) -> Tensor:
    if dtype not in TRITON_DTYPES:
        raise UnsupportedError(f"{kind} {name!r} is {dtype}; served are {', '.join(TRITON_DTYPES)}")
    return Tensor.model_validate({"name": name, "dtype": dtype, "shape": shape})


def _samples(path: Path) -> Arrays:
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise UnsupportedError(f"--samples {path}: one array; np.savez writes them by input name")
        return {name: file[name] for name in file}
    except UnsupportedError:
        raise
    except Exception as error:  # of any kind, depending on the content
        raise UnsupportedError(
            f"--samples {path}: not an .npz file of plain arrays: {one_line(error)}"
        ) from error


def _check_samples(names: list[str], samples: Arrays) -> None:
    for name in names:
        if name not in samples:
            raise UnsupportedError(f"--samples: no array {name!r}; found: {', '.join(samples) or 'none'}")
        if not samples[name].ndim:
            raise UnsupportedError(f"--samples: {name!r} is one number; the first axis counts the samples")
    counts = {name: len(samples[name]) for name in names}
    if len(set(counts.values())) > 1 or not min(counts.values()):
        found = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise UnsupportedError(
            f"--samples: every input needs as many samples, and at least one; found: {found}"
        )


def random_samples(tensors: tuple[Tensor, ...]) -> Arrays:
    """Seeded data: normal floats, any byte (as of images), and 0 or 1 for the other integers, which is
    within any vocabulary and any mask."""
    rng = np.random.default_rng(0)
    found: Arrays = {}
    for tensor in tensors:
        batch = _fixed(tensors) or 1
        shape, dtype = [-(-SAMPLES // batch) * batch, *map(int, tensor.shape[1:])], np.dtype(tensor.dtype)
        if math.prod(shape) * dtype.itemsize > MOST_BYTES:
            raise UnsupportedError(
                f"input {tensor.name!r}: {shape[0]} random samples of {list(tensor.shape)} are over 4 GiB; "
                "give --samples or a smaller --shape"
            )
        if np.issubdtype(dtype, np.floating):
            found[tensor.name] = rng.normal(size=shape).astype(dtype)
        else:
            found[tensor.name] = rng.integers(0, 256 if dtype == np.uint8 else 2, size=shape).astype(dtype)
    return found


def _run(
    job: ModelFileJob, reader: Reader, inputs: tuple[Tensor, ...], outputs: list[Declared], x: Arrays
) -> tuple[Interface, dict[str, float]]:
    """Inputs, and outputs as the model gives them for two and for three samples, or for the batch that it
    takes, and the largest value of each output."""
    names = tuple(Tensor(name=t.name, dtype="float32", shape=(-1,)) for t in outputs)
    answers, sizes = [], (_fixed(inputs),) * 2 if _fixed(inputs) else (2, 3)
    try:
        named = Interface(inputs=inputs, outputs=names)
        network = reader.open_network(job.output / "data" / reader.FILE, named, job.fields.parameters)
        for size in sizes:
            rows = np.arange(size) % len(next(iter(x.values())))
            answers.append(network.run({name: array[rows] for name, array in x.items()}))
    except Exception as error:  # of any kind, depending on the model and its framework
        shown = ", ".join(f"{t.name} {t.dtype} {list(t.shape)}" for t in inputs)
        hint = "where the file does not say types and shapes, --samples does"
        raise UnsupportedError(f"it does not run with {shown}: {one_line(error)} ({hint})") from error
    found, scales = [], {}
    for tensor in outputs:
        two, three = (answer[tensor.name] for answer in answers)
        if (*two.shape[:1], *three.shape[:1]) != sizes:
            raise UnsupportedError(
                f"output {tensor.name!r} has no batch axis: shape {list(two.shape)} for {sizes[0]} samples, "
                f"{list(three.shape)} for {sizes[1]}"
            )
        said = tensor.shape if tensor.shape and len(tensor.shape) == two.ndim else two.shape
        same = [
            have if want != -1 and have == other else -1
            for want, have, other in zip(said[1:], two.shape[1:], three.shape[1:], strict=True)
        ]
        found.append(_tensor("output", tensor.name, str(two.dtype), (_fixed(inputs) or -1, *same)))
        values = np.abs(three.astype(np.float64))
        scales[tensor.name] = float(values.max(initial=0.0, where=np.isfinite(values))) or 1.0
    return Interface(inputs=inputs, outputs=tuple(found)), scales


def _spec(
    job: ModelFileJob,
    interface: Interface,
    formats: dict[Format, dict[str, Any]],
    scales: dict[str, float],
    opset: int,
    samples: int,
) -> ModelSpec:
    """Tolerances are shares of an output's largest value, for what a file's values mean is not known."""
    floats = {t.dtype for t in (*interface.inputs, *interface.outputs)}
    precisions = ["fp32", "fp16"] if "float32" in floats else ["fp32"]
    batch = _fixed(interface.inputs)
    no_engines = batch or any(
        -1 in tensor.shape[1:] for tensor in interface.inputs
    )  # they are for given shapes
    wanted = {
        name: entry | {"precisions": [p for p in precisions if p in entry["precisions"]]}
        for name, entry in formats.items()
        if not (FORMATS[name].engines and no_engines)
    }
    serving = {"max_batch_size": 0 if batch else MAX_BATCH, "preferred_batch_sizes": [] if batch else [4, 8]}
    variant = {
        "parameters": job.fields.parameters,
        "samples": samples,
        "serving": serving | {"max_queue_delay_us": 1, "load_timeout_s": 300},
        "offline": {"batch_sizes": [batch] if batch else [1, 4, 8]},
        "online": {"client_batch": batch or 1, "concurrency": [1, 4, 16]},
    }
    tolerances = {}
    for precision, share, bounds in (
        ("fp32", 1e-4, {"relative": 1e-3, "cosine": 0.9999, "agreement": 0.999}),
        ("fp16", 2e-2, {"relative": 2e-2, "cosine": 0.999, "agreement": 0.95}),
    ):
        own = {name: {"absolute": float(f"{share * scale:.3g}"), **bounds} for name, scale in scales.items()}
        several = {"absolute": share, **bounds, "outputs": own}
        tolerances[precision] = several if len(own) > 1 else next(iter(own.values()))
    return ModelSpec.model_validate(
        {
            "name": job.fields.name,
            "description": f"made of the file {job.inputs['file'].name}",
            "framework": job.fields.kind,
            "requires": job.fields.requires,
            "opset": opset,
            **interface.model_dump(),
            "formats": wanted,
            "tolerances": tolerances,
            "variants": {"file": variant},
        }
    )
