"""A plug-in's network in PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from tasks.arrays import Arrays
from tasks.child.framework_steps import answers
from tasks.child.plugin_steps import arguments
from tasks.child.plugin_steps import load as load_file
from tasks.core.build import Job
from tasks.core.errors import UnsupportedError
from tasks.core.spec import Tolerances
from tasks.core.values import Interface
from tasks.matching import match

SAME = Tolerances(absolute=1e-3, cosine=0.999)
"""What a trace may differ by from the module that it was made of."""


class TorchNetwork:
    """A module that takes and gives tensors in the interface's order."""

    def __init__(self, module: Any, interface: Interface, device: str = "cpu") -> None:
        self.device = torch.device("cuda" if device == "gpu" else device)
        self.module = module.to(self.device)
        self.inputs = [tensor.name for tensor in interface.inputs]
        self.outputs = [tensor.name for tensor in interface.outputs]
        self.interface = interface

    def run(self, x: Arrays) -> Arrays:
        """One call; arrays by tensor name in and out."""
        with torch.inference_mode():
            found = answers(self.module(*self._tensors(x)), self.outputs)
        return {name: value.cpu().numpy() for name, value in found.items()}

    def export(self, job: Job, x: Arrays) -> None:
        """Write `model.pt` or `model.onnx`."""
        with warnings.catch_warnings():
            # TorchScript and the exporter are deprecated in PyTorch 2.13, and work.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            if job.fields["format"] == "onnx":
                self._export_onnx(job, x)
            else:
                script = self._trace(x) if job.fields["format"] == "ts-trace" else self._script()
                script.save(str(job.output / "model.pt"))

    def _export_onnx(self, job: Job, x: Arrays) -> None:
        tensors = (*self.interface.inputs, *self.interface.outputs)
        free = {t.name: [i for i, axis in enumerate(t.shape) if axis == -1] for t in tensors}
        torch.onnx.export(
            self.module,
            self._tensors(x),
            str(job.output / "model.onnx"),
            input_names=self.inputs,
            output_names=self.outputs,
            dynamic_axes={n: {i: f"{n}_{i}" if i else "batch" for i in a} for n, a in free.items()},
            opset_version=job.fields["opset"],
            dynamo=False,  # this graph is the one that the transformer optimizer can fuse
        )

    def _trace(self, x: Arrays) -> Any:
        traced = torch.jit.trace(self.module, self._tensors(x))
        alone = {name: array[:1] for name, array in x.items()}
        found = TorchNetwork(traced, self.interface).run(alone)
        for entry in match(self.interface.outputs, found, self.run(alone), SAME):
            for why in entry.failures(SAME):
                raise ValueError(
                    f"the trace answers a batch of 1 wrongly ({why}): model.py's forward depends on the "
                    f"batch size that it was traced with"
                )
        return traced

    def _script(self) -> Any:
        try:
            return torch.jit.script(self.module)
        except (RuntimeError, OSError, TypeError, NotImplementedError) as error:  # all that script raises
            line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            raise UnsupportedError(f"torch.jit.script cannot compile this network: {line}") from error

    def _tensors(self, x: Arrays) -> tuple[torch.Tensor, ...]:
        arrays = (np.ascontiguousarray(x[name]) for name in self.inputs)
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)


def load(job: Job, interface: Interface, device: str) -> TorchNetwork:
    """The module of model.py's `get_model`, which says what its tensors are called, on `cpu` or `gpu`.

    On a GPU, too, fp32 is fp32: without TF32, which PyTorch would use for convolutions.

    Raises:
        ValueError: the names are not the spec's, or the module is in training mode.
    """
    make = load_file(job, "model.py").get_model
    torch.backends.cudnn.allow_tf32 = False
    module, names = make(**arguments(job, make))
    network = TorchNetwork(module, interface, device)
    for kind, wanted in (("inputs", network.inputs), ("outputs", network.outputs)):
        if list(names[kind]) != wanted:
            raise ValueError(f"model.py: get_model names {kind} {names[kind]}, model.yaml {wanted}")
    if module.training:
        raise ValueError("model.py: get_model must return its outermost module after .eval()")
    return network
