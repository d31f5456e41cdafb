"""The step that compiles a package of AOTInductor."""

from __future__ import annotations

import json
import os
import shutil

import torch

from servegrid.formats.aoti import session
from servegrid.frameworks import artifacts
from servegrid.store.build import Job


def compile_package(job: Job) -> None:
    """`model.pt2`, compiled by AOTInductor, and `built_for.json`, the machine that may run it."""
    scratch = job.output / "inductor"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch)  # or it is left in the host's temporary folder
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of workers that could outlive us
    program = torch.export.load(str(job.inputs["source"] / "model.pt2"))
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(job.output / "model.pt2"),
        # Compiled headers would stay in /tmp/torchinductor_USER.
        inductor_configs={"aot_inductor.precompile_headers": False},
    )
    shutil.rmtree(scratch, ignore_errors=True)
    machine = json.dumps(job.fields["machine"], indent=1)
    (job.output / session.MACHINE).write_text(machine, encoding="utf-8")
    artifacts.finish(job, session.Session)
