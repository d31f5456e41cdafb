"""The conversion to `aoti`: a package compiled by AOTInductor."""

from __future__ import annotations

import os
import shutil

import torch

from servegrid.formats import artifacts
from servegrid.formats.aoti import session
from servegrid.formats.aoti.fields import AotiJob


def compile_package(job: AotiJob) -> None:
    """`model.pt2`, compiled by AOTInductor, and `built_for.json`, the machine that it is for."""
    scratch = job.output / "inductor"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch)  # else it stays in the host's temporary folder
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no worker processes that could outlive this one
    program = torch.export.load(str(job.inputs["source"] / "model.pt2"))
    torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(job.output / "model.pt2"),
        # Compiled headers would stay in /tmp/torchinductor_USER.
        inductor_configs={"aot_inductor.precompile_headers": False},
    )
    shutil.rmtree(scratch, ignore_errors=True)
    machine = job.fields.machine.model_dump_json(indent=1)
    (job.output / session.MACHINE).write_text(machine, encoding="utf-8")
    artifacts.finish(job, session.Session)
