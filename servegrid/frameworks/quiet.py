"""Hides known warnings of other libraries that nobody can act on. Other warnings are shown, and those of the
model's own files too."""

from __future__ import annotations

import functools
import logging
import os
import re
import warnings

WARNINGS: tuple[tuple[type[Warning], str, str], ...] = (
    # Tracing reads every property of a module, also those that transformers will remove.
    (FutureWarning, "transformers.modeling_utils", "`is_gradient_checkpointing` is deprecated"),
    # It checks whether a sequence has more than one token; it is written for a trace that keeps the result.
    (Warning, "transformers.integrations.sdpa_attention", "Converting a tensor to a Python boolean"),
    # Annotations of MONAI's own classes: if one mattered, the script would not compile.
    (UserWarning, "ast", "The TorchScript type system doesn't support instance-level annotations"),
    # An instance norm has no running statistics: it does the same in training and evaluation.
    (
        UserWarning,
        "torch.onnx._internal.torchscript_exporter.symbolic_opset9",
        "ONNX export mode is set to TrainingMode.EVAL, but operator 'instance_norm'",
    ),
    # torch.export.load reads a file of the same PyTorch.
    (FutureWarning, "copyreg", "`isinstance(treespec, LeafSpec)` is deprecated"),
)
"""Category, module, and beginning of the warning."""

LOGGED: tuple[tuple[str, str], ...] = (
    # Tracing reads the loss of each part of a network; only the whole network has one.
    ("transformers.modeling_utils", "`loss_type=None` was set in the config but it is unrecognized"),
    # TensorFlow's profiler, which counts the operations, calls functions that TensorFlow will remove.
    ("tensorflow", "flops_registry.py"),
)
"""A logger, and a part of the line."""


def be_quiet() -> None:
    """Call this before a framework is imported. Settings of the user stay."""
    # TensorFlow's C++ code logs errors only, not the features of the CPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for category, module, start in WARNINGS:
        warnings.filterwarnings(
            "ignore", message=re.escape(start), category=category, module=re.escape(module)
        )
    for logger, known in LOGGED:
        logging.getLogger(logger).addFilter(functools.partial(_shown, known))


def _shown(known: str, record: logging.LogRecord) -> bool:
    return known not in record.getMessage()
