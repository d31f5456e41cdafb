"""`python -m servegrid.frameworks JOB.json [--output DIR]`: run one step, alone in this process."""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
from pathlib import Path

from servegrid.domain.errors import UnsupportedError
from servegrid.frameworks import quiet
from servegrid.frameworks.plugin_steps import import_path
from servegrid.host import process_environment
from servegrid.hosting import threads
from servegrid.store.build import UNSUPPORTED_EXIT, Job

STEPS = {
    "prepare": "servegrid.frameworks.plugin_steps:prepare",
    "profile_data": "servegrid.frameworks.plugin_steps:profile_data",
    "score": "servegrid.frameworks.plugin_steps:score",
    "export": "servegrid.frameworks.framework_steps:export",
    "reference": "servegrid.frameworks.framework_steps:reference",
    "baseline": "servegrid.frameworks.framework_steps:baseline",
    "ceilings": "servegrid.frameworks.ceilings:measure",
    "convert_torchscript": "servegrid.formats.torchscript.convert:convert_torchscript",
    "compile_package": "servegrid.formats.aoti.convert:compile_package",
    "convert_savedmodel": "servegrid.formats.savedmodel.convert:convert_savedmodel",
    "read_model_file": "servegrid.frameworks.model_file:read_model_file",
    "convert_onnx": "servegrid.formats.onnx.convert:convert_onnx",
    "convert_tftrt": "servegrid.formats.savedmodel.convert_tf_trt:convert_tftrt",
    "convert_tensorrt": "servegrid.formats.trt.convert:convert_tensorrt",
}
"""Step -> "module:function"; the module is imported only when its step runs."""

ALONE = {"torch", "tensorflow"}
"""Frameworks of which one process may have one: each brings libraries of its own under the same names."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m servegrid.frameworks", description=__doc__)
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
    try:
        with import_path(job.plugin, *job.paths):
            step(job)
            together = set(sys.modules) >= ALONE
    except UnsupportedError as error:
        print(error, flush=True)
        return UNSUPPORTED_EXIT
    if together:
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
