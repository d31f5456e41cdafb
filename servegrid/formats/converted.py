"""The step that runs a converted model without a server."""

from __future__ import annotations

import importlib

import numpy as np

from servegrid.domain import arrays
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import NOT_RUN
from servegrid.formats import artifacts
from servegrid.formats.fields import ConvertedAnswersJob


def converted_answers(job: ConvertedAnswersJob) -> None:
    """`outputs.npz`: the converted model's outputs for every sample, from the session of the hosted runtime.

    Raises:
        UnsupportedError: the model was built, and cannot run on this host.
    """
    fields, artifact = job.fields, job.inputs["converted"]
    if (artifact / NOT_RUN).exists():
        raise UnsupportedError((artifact / NOT_RUN).read_text(encoding="utf-8"))
    module = importlib.import_module(f"servegrid.formats.{fields.session}.session")
    session: artifacts.Session = module.Session(artifact, fields.device.upper())
    with np.load(job.inputs["samples"] / "samples.npz") as file:
        x = {
            tensor.name: file[f"x/{tensor.name}"].astype(tensor.dtype, copy=False)
            for tensor in artifacts.read_interface(artifact).inputs
        }
    count, step = len(next(iter(x.values()))), fields.batch_size
    parts = [
        session.run({name: np.ascontiguousarray(array[i : i + step]) for name, array in x.items()})
        for i in range(0, count, step)
    ]
    outputs = {name: arrays.concatenate_answers([part[name] for part in parts]) for name in parts[0]}
    np.savez(job.output / "outputs.npz", allow_pickle=False, **outputs)
    print(f"{count} samples in batches of {step}")
