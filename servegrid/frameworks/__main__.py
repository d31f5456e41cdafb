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
from servegrid.frameworks.steps import STEPS, read_job
from servegrid.host import process_environment
from servegrid.hosting import threads
from servegrid.store.build import UNSUPPORTED_EXIT

ALONE = {"torch", "tensorflow"}
"""Frameworks that one process must not import together: they bring different libraries under one name."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m servegrid.frameworks", description=__doc__)
    parser.add_argument("job", type=Path, help="the job file that a stage wrote")
    parser.add_argument("--output", type=Path, help="write to this folder, not to the one in the job")
    arguments = parser.parse_args()
    job = read_job(arguments.job)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        job = job.model_copy(update={"output": arguments.output})
    # Output goes to a pipe: write each line at once, so that it comes before a traceback.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # stdout is a TextIOWrapper
    quiet.be_quiet()
    process_environment.apply_defaults()  # a step that is repeated by hand has no parent to set them
    threads.limit()  # as hosted sessions do, with whose latency the framework's is compared
    # Import the step before the model's folder is on the path: its files can have the names of our modules.
    module, _, function = STEPS[job.step].function.partition(":")
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
