"""Every step of the child processes: what it reads, its function, and the code that it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from servegrid.domain.errors import unknown
from servegrid.domain.values import Format
from servegrid.formats.aoti.fields import AotiFields
from servegrid.formats.fields import ConvertedAnswersFields, ConvertFields, EngineFields
from servegrid.formats.onnx.fields import OnnxFields
from servegrid.formats.torchscript.fields import TorchScriptFields
from servegrid.formats.trt.fields import TrtFields
from servegrid.frameworks import fields
from servegrid.store.code import code_digests
from servegrid.store.job import Fields, Job


class Step(NamedTuple):
    """One step: the class of its job's fields, "module:function", and the formats that it converts to.

    The module imports frameworks, so it is imported only when the step runs.
    """

    fields: type[Fields]
    function: str
    formats: tuple[Format, ...] = ()


STEPS: dict[str, Step] = {
    "prepare": Step(fields.PrepareFields, "servegrid.frameworks.plugin_steps:prepare"),
    "profile_data": Step(fields.ProfileDataFields, "servegrid.frameworks.plugin_steps:profile_data"),
    "converted_answers": Step(ConvertedAnswersFields, "servegrid.formats.converted:converted_answers"),
    "score": Step(fields.ScoreFields, "servegrid.frameworks.plugin_steps:score"),
    "stock_score": Step(fields.StockScoreFields, "servegrid.frameworks.stock_metrics:score"),
    "export": Step(fields.ExportFields, "servegrid.frameworks.framework_steps:export"),
    "reference": Step(fields.ReferenceFields, "servegrid.frameworks.framework_steps:reference"),
    "baseline": Step(fields.BaselineFields, "servegrid.frameworks.framework_steps:baseline"),
    "ceilings": Step(fields.CeilingsFields, "servegrid.frameworks.ceilings:measure"),
    "read_model_file": Step(
        fields.ModelFileFields, "servegrid.frameworks.model_files.model_file:read_model_file"
    ),
    "read_hugging_face": Step(
        fields.HuggingFaceFields, "servegrid.frameworks.hugging_face_folder.read:read_hugging_face"
    ),
    "convert_torchscript": Step(
        TorchScriptFields,
        "servegrid.formats.torchscript.convert:convert_torchscript",
        ("ts-trace", "ts-script"),
    ),
    "compile_package": Step(AotiFields, "servegrid.formats.aoti.convert:compile_package", ("aoti",)),
    "convert_onnx": Step(OnnxFields, "servegrid.formats.onnx.convert:convert_onnx", ("onnx",)),
    "convert_tensorrt": Step(TrtFields, "servegrid.formats.trt.convert:convert_tensorrt", ("trt",)),
    "convert_savedmodel": Step(
        ConvertFields, "servegrid.formats.savedmodel.convert:convert_savedmodel", ("tf-savedmodel",)
    ),
    "convert_tftrt": Step(
        EngineFields, "servegrid.formats.savedmodel.convert_tf_trt:convert_tftrt", ("tf-trt",)
    ),
}


def convert_step(format_: Format) -> str:
    """The step that converts to a format."""
    return next(name for name, step in STEPS.items() if format_ in step.formats)


def parse_fields(step: str, document: dict[str, Any]) -> Fields:
    """The fields of a step, checked."""
    return STEPS[step].fields.model_validate(document)


def read_job(path: Path) -> Job[Fields]:
    """The job in a file.

    Raises:
        UserError: no step has its name.
        ValueError: the file is not JSON, or not a job of its step.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    name = document["step"]
    if name not in STEPS:
        raise unknown(f"step (in {path})", name, STEPS)
    return Job[Fields].model_validate(document | {"fields": parse_fields(name, document["fields"])})


def code(step: str, *modules: str) -> dict[str, str]:
    """Digests of the code of a step; `modules` are those that it loads by name."""
    return code_digests(STEPS[step].function.partition(":")[0], *modules)
