"""Options of ONNX Runtime on the CPU: for the hosted session, and for the framework's own answers."""

from typing import Any

import onnxruntime

from . import threads


def cpu_options() -> Any:
    """Session options with a thread for each core that this process may use; waiting threads sleep."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads.count(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
