"""An exported program in a form that TorchScript's tracer can follow."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from servegrid.domain.errors import UnsupportedError


class TraceableProgram(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Runs the graph of an exported program; tensors in and out."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module  # it owns the weights
        self.interpreter = _ByFunctions(module)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(pytree.tree_leaves(self.interpreter.run(*tensors)))


class _ByFunctions(torch.fx.Interpreter):  # type: ignore[misc]
    """Calls operators that take sizes as methods and functions of `torch`: the tracer follows a size into
    these, and writes a constant for the same size into an operator's own call."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(target, torch._ops.OpOverload) or "SymInt" not in str(target._schema):
            return super().call_function(target, args, kwargs)
        schema = target._schema
        name = schema.name.partition("::")[2]
        if name == "sym_size":
            return args[0].shape[args[1]]
        if name.startswith(("sym_constrain_range", "_assert")):
            return None
        if name == "slice":
            return _slice(*args, **kwargs)
        is_method = bool(schema.arguments) and schema.arguments[0].name == "self"
        function = getattr(torch.Tensor if is_method else torch, name, None)
        if function is not None:
            return function(*args, **kwargs)
        sizes = [value for a, value in zip(schema.arguments, args, strict=False) if "SymInt" in str(a)]
        if any(isinstance(value, torch.Tensor) for value in pytree.tree_leaves(sizes)):
            raise UnsupportedError(f"TorchScript cannot trace {target} with a free size")
        return super().call_function(target, args, kwargs)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(*[slice(None)] * (dim % x.dim()), slice(start, end, step))]
