"""What other libraries say in a step and nobody can act on: known lines, which are not shown. All others are,
and so is whatever a plug-in says itself."""

from __future__ import annotations

import functools
import logging
import os
import re
import warnings

WARNINGS: tuple[tuple[type[Warning], str, str], ...] = (
    # Tracing reads every property of a module, also those that transformers will remove.
    (FutureWarning, "transformers.modeling_utils", "`is_gradient_checkpointing` is deprecated"),
    # It asks whether a sequence has more than one token, and knows that a trace keeps the answer.
    (Warning, "transformers.integrations.sdpa_attention", "Converting a tensor to a Python boolean"),
    # Annotations of MONAI's own classes: where one mattered, the script would not compile.
    (UserWarning, "ast", "The TorchScript type system doesn't support instance-level annotations"),
    # An instance norm has no running statistics: it does the same in training and afterwards.
    (
        UserWarning,
        "torch.onnx._internal.torchscript_exporter.symbolic_opset9",
        "ONNX export mode is set to TrainingMode.EVAL, but operator 'instance_norm'",
    ),
    # What torch.export.load reads was written by the same PyTorch.
    (FutureWarning, "copyreg", "`isinstance(treespec, LeafSpec)` is deprecated"),
)
"""Category, the module that warns, and how the warning begins."""

LOGGED: tuple[tuple[str, str], ...] = (
    # Tracing reads the loss of each part of a network, and only the whole has one.
    ("transformers.modeling_utils", "`loss_type=None` was set in the config but it is unrecognized"),
    # TensorFlow's own profiler, which counts the operations, calls what TensorFlow will remove.
    ("tensorflow", "flops_registry.py"),
)
"""A logger, and what the line holds."""


def be_quiet() -> None:
    """To be called before a framework is imported; what the user has set stays."""
    # TensorFlow's C++ code tells errors only, not at length which CPU it found.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for category, module, start in WARNINGS:
        warnings.filterwarnings(
            "ignore", message=re.escape(start), category=category, module=re.escape(module)
        )
    for logger, known in LOGGED:
        logging.getLogger(logger).addFilter(functools.partial(_shown, known))


def _shown(known: str, record: logging.LogRecord) -> bool:
    return known not in record.getMessage()
