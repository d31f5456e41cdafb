"""The options about a model that a person brings: a file, a Hugging Face folder or a model folder."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field, model_validator

from servegrid.domain.names import Finite, Name, NotNegative
from servegrid.domain.values import ModelSource
from servegrid.plan.selection import Panel, Selection

MODEL_FILES: tuple[ModelSource, ...] = get_args(ModelSource)
MODEL_FLAGS = [f"--{kind.replace('_', '-')}" for kind in MODEL_FILES]


class OwnModel(Selection):
    """The model, its samples, and a metric of it that needs no Python."""

    onnx: Annotated[str | None, Panel.OWN] = Field(
        None, description="An ONNX file instead of a folder of models/"
    )
    torchscript: Annotated[str | None, Panel.OWN] = Field(
        None, description="A TorchScript file instead; loading it runs the code that it holds"
    )
    torch_export: Annotated[str | None, Panel.OWN] = Field(
        None, description="A file of torch.export.save instead; loading it may run code that it holds"
    )
    savedmodel: Annotated[str | None, Panel.OWN] = Field(
        None, description="The folder of a TensorFlow SavedModel instead"
    )
    keras: Annotated[str | None, Panel.OWN] = Field(
        None, description="A .keras file instead; no code that it holds is run"
    )
    hf: Annotated[str | None, Panel.OWN] = Field(
        None, description="A local Hugging Face folder instead: config.json, safetensors, tokenizer"
    )
    task: Annotated[str | None, Panel.OWN] = Field(
        None, description="What a Hugging Face folder is served for, where its architecture does not say it"
    )
    shapes: Annotated[tuple[str, ...], Panel.OWN] = Field(
        (), description="NAME=1,3,224,224: an input's shape, where the model file leaves it open"
    )
    samples: Annotated[str | None, Panel.OWN] = Field(
        None,
        description="An .npz file with an array for each input of the model file, batch first; for --hf a "
        ".jsonl file, or a folder of images or .wav files",
    )
    signature: Annotated[str | None, Panel.OWN] = Field(
        None, description="The signature of the SavedModel; by default serving_default, or the only one"
    )
    name: Annotated[Name | None, Panel.OWN] = Field(
        None, description="The name of the model file's model; by default the file's"
    )
    labels: Annotated[str | None, Panel.OWN] = Field(
        None, description="An .npz file with one array, or a .csv file with a header: a label for each sample"
    )
    metric: Annotated[str | None, Panel.OWN] = Field(
        None,
        description="NAME or NAME:OUTPUT: a scorer of scikit-learn, dice or top5, with labels; agreement or "
        "cosine, with the framework's answers",
    )
    threshold: Annotated[Finite | None, Panel.OWN] = Field(
        None, description="The least score; by default one that permuted answers do not reach"
    )
    drop: Annotated[NotNegative | None, Panel.OWN] = Field(
        None, description="By how much the served model's score may be lower than the framework's"
    )
    model_dir: Annotated[str | None, Panel.OWN] = Field(
        None, description="A model folder that lies outside models/"
    )
    plugin_paths: Annotated[tuple[str, ...], Panel.OWN] = Field(
        (), description="A folder that the model's Python files import from"
    )

    @model_validator(mode="after")
    def _options_of_a_file(self) -> OwnModel:
        if (self.shapes or self.samples is not None) and self.model_file is None:
            raise ValueError(f"--shape and --samples go with {' or '.join(MODEL_FLAGS)}")
        if self.name is not None and self.model_file is None:
            raise ValueError("--name goes with a model file: a folder's name is in its model.yaml")
        if self.signature is not None and self.savedmodel is None:
            raise ValueError("--signature goes with --savedmodel")
        if self.shapes and self.hf is not None:
            raise ValueError("--shape: the folder of --hf says the shapes; a text's length stays free")
        if self.task is not None and self.hf is None:
            raise ValueError("--task goes with --hf")
        if self.random_weights and self.model_file is not None:
            raise ValueError("--random-weights: a model file has its weights")
        return self

    @model_validator(mode="after")
    def _options_of_a_metric(self) -> OwnModel:
        for name in ("labels", "threshold", "drop"):
            if getattr(self, name) is not None and self.metric is None:
                raise ValueError(f"--{name} goes with --metric")
        if self.metric is None:
            return self
        if self.model_file is None and self.model_dir is None:
            raise ValueError("--metric goes with a model file or --model-dir")
        if self.model_file is not None and self.labels is not None and self.samples is None:
            raise ValueError("--labels goes with --samples: the labels are of samples that you give")
        if self.random_weights:
            raise ValueError("--random-weights: without trained weights no --metric is computed")
        return self

    @property
    def model_file(self) -> tuple[ModelSource, str] | None:
        """The kind and path of the model file or Hugging Face folder, if there is one."""
        return next(((kind, path) for kind in MODEL_FILES if (path := getattr(self, kind)) is not None), None)
