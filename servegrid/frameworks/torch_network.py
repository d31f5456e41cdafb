"""A plug-in's network in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from servegrid.domain.arrays import Arrays, match
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Interface
from servegrid.frameworks.fields import ExportJob, NetworkJob
from servegrid.frameworks.networks import outputs_by_name
from servegrid.frameworks.plugin_steps import arguments
from servegrid.frameworks.plugin_steps import load as load_file

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
        """One call; arrays by tensor name in and out. They are copies: a forward may write into its inputs,
        and answer with a buffer of the module's that its next call overwrites."""
        with torch.inference_mode():
            found = outputs_by_name(self.module(*self._tensors(x)), self.outputs)
        return {name: value.cpu().numpy().copy() for name, value in found.items()}

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Write `model.pt`, `model.pt2` or `model.onnx`."""
        if job.fields.format == "onnx":
            self._export_onnx(job, x)
        elif job.fields.format == "torch-export":
            torch.export.save(self._program(x), job.output / "model.pt2")
        else:
            script = self._trace(x) if job.fields.format == "ts-trace" else self._script()
            script.save(str(job.output / "model.pt"))

    def count(self, x: Arrays) -> tuple[float | None, int | None]:
        """By PyTorch's FlopCounterMode: matrix products, convolutions, attention. Attention is computed by
        products, for the counter does not know the CPU's fused one."""
        products = sdpa_kernel(SDPBackend.MATH)
        with torch.inference_mode(), products, FlopCounterMode(display=False) as counter:
            self.module(*self._tensors(x))
        tensors = (*self.module.parameters(), *self.module.buffers())
        return counter.get_total_flops(), sum(t.numel() for t in tensors if t.is_floating_point())

    def _export_onnx(self, job: ExportJob, x: Arrays) -> None:
        tensors = (*self.interface.inputs, *self.interface.outputs)
        free = {t.name: [i for i, axis in enumerate(t.shape) if axis == -1] for t in tensors}
        torch.onnx.export(
            self.module,
            self._tensors(x),
            str(job.output / "model.onnx"),
            input_names=self.inputs,
            output_names=self.outputs,
            dynamic_axes={n: {i: f"{n}_{i}" if i else "batch" for i in a} for n, a in free.items()},
            opset_version=job.fields.opset,
            dynamo=False,  # this graph is the one that the transformer optimizer can fuse
        )

    def _program(self, x: Arrays) -> Any:
        free = torch.export.Dim.DYNAMIC
        shapes = tuple(
            {i: free for i, axis in enumerate(tensor.shape) if axis == -1} for tensor in self.interface.inputs
        )
        try:
            program = torch.export.export(self.module, self._tensors(x), dynamic_shapes=shapes)
        except Exception as error:  # of many kinds: what the network does cannot be captured whole
            raise UnsupportedError(
                f"torch.export cannot export this network: {_first_line(error)}"
            ) from error
        self._check_alone(program.module(), "exported program", x)
        return program

    def _trace(self, x: Arrays) -> Any:
        traced = torch.jit.trace(self.module, self._tensors(x))
        self._check_alone(traced, "trace", x)
        return traced

    def _check_alone(self, module: Any, what: str, x: Arrays) -> None:
        """Raises ValueError where what was exported at another batch size answers a single sample wrongly."""
        alone = {name: array[:1] for name, array in x.items()}
        found = TorchNetwork(module, self.interface).run(alone)
        for entry in match(self.interface.outputs, found, self.run(alone), SAME):
            for why in entry.failures(SAME):
                raise ValueError(
                    f"the {what} answers a batch of 1 wrongly ({why}): model.py's forward depends on the "
                    f"batch size that it was exported with"
                )

    def _script(self) -> Any:
        try:
            return torch.jit.script(self.module)
        except (RuntimeError, OSError, TypeError, NotImplementedError) as error:  # all that script raises
            raise UnsupportedError(
                f"torch.jit.script cannot compile this network: {_first_line(error)}"
            ) from error

    def _tensors(self, x: Arrays) -> tuple[torch.Tensor, ...]:
        arrays = (np.array(x[name], order="C") for name in self.inputs)
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def load(job: NetworkJob) -> TorchNetwork:
    """The module of model.py's `get_model`, which says what its tensors are called, on `cpu` or `gpu`.

    On a GPU, too, fp32 is fp32: without TF32, which PyTorch would use for convolutions.

    Raises:
        ValueError: the names are not the spec's, or the module is in training mode.
    """
    make = load_file(job, "model.py").get_model
    torch.backends.cudnn.allow_tf32 = False
    module, names = make(**arguments(job, make))
    network = TorchNetwork(module, job.fields.interface, job.fields.device)
    for kind, wanted in (("inputs", network.inputs), ("outputs", network.outputs)):
        if list(names[kind]) != wanted:
            raise ValueError(f"model.py: get_model names {kind} {names[kind]}, model.yaml {wanted}")
    if module.training:
        raise ValueError("model.py: get_model must return its outermost module after .eval()")
    return network
