"""`python -m tasks.child JOB.json [--output DIR]`: run one step, alone in this process."""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
from pathlib import Path

from tasks.child import quiet
from tasks.core import process_environment
from tasks.core.build import UNSUPPORTED_EXIT, Job
from tasks.core.errors import UnsupportedError
from tasks.hosting import threads

STEPS = {
    "prepare": "tasks.child.plugin_steps:prepare",
    "profile_data": "tasks.child.plugin_steps:profile_data",
    "score": "tasks.child.plugin_steps:score",
    "export": "tasks.child.framework_steps:export",
    "reference": "tasks.child.framework_steps:reference",
    "baseline": "tasks.child.framework_steps:baseline",
    "ceilings": "tasks.child.ceilings:measure",
    "convert_torchscript": "tasks.child.torch_steps:convert_torchscript",
    "compile_package": "tasks.child.torch_steps:compile_package",
    "convert_savedmodel": "tasks.child.tensorflow_steps:convert_savedmodel",
    "read_model_file": "tasks.child.model_file:read_model_file",
    "convert_onnx": "tasks.child.onnx_steps:convert_onnx",
    "convert_tftrt": "tasks.child.tftrt_steps:convert_tftrt",
    "convert_tensorrt": "tasks.child.tensorrt_steps:convert_tensorrt",
}
"""Step -> "module:function"; the module is imported only when its step runs."""

ALONE = {"torch", "tensorflow"}
"""Frameworks of which one process may have one: each brings libraries of its own under the same names."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tasks.child", description=__doc__)
    parser.add_argument("job", type=Path, help="the job file that a stage wrote")
    parser.add_argument("--output", type=Path, help="write here instead of where the job says")
    arguments = parser.parse_args()
    job = Job.model_validate_json(arguments.job.read_text(encoding="utf-8"))
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        job = job.model_copy(update={"output": arguments.output})
    # Lines come as they are printed, and before the traceback that follows them: output goes to a pipe.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is no other stream
    quiet.be_quiet()
    process_environment.apply_defaults()  # a step that is repeated by hand has no parent that did
    threads.limit()  # the framework's own latency is compared with that of sessions, which do the same
    # What we need is imported before the plug-in's folder goes on the path: its files may bear our names.
    module, _, function = STEPS[job.step].partition(":")
    step = getattr(importlib.import_module(module), function)
    sys.path[:0] = [str(job.plugin), *map(str, job.paths)]
    try:
        step(job)
    except UnsupportedError as error:
        print(error, flush=True)
        return UNSUPPORTED_EXIT
    if not ALONE - set(sys.modules):
        both = " and ".join(sorted(ALONE))
        print(
            f"{job.step} loaded {both} in one process, where they may break one another: let the Python "
            f"files in {job.plugin} import one of them",
            flush=True,
        )
        return 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak memory {peak / 1e9:.2f} GB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
