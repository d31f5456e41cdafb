"""The stock metric of the options, in a model's spec."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
from pydantic import ValidationError

from servegrid.domain.errors import UserError, unknown
from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.tolerances import Metric
from servegrid.domain.values import Precision, Tensor
from servegrid.domain.yaml_files import explain
from servegrid.frameworks.metric_kinds import CLUSTERING, OWN, WITH_FRAMEWORK, Array, of_numbers
from servegrid.plan.options import SweepOptions
from servegrid.plan.spec_rules import RULES
from servegrid.sources.labels import check_labels, read_labels

THRESHOLDS = {"agreement": 0.99, "cosine": 0.999}
"""The least scores of metrics whose best one is 1."""
DROPS: dict[str, float] = {"fp32": 0.001, "fp16": 0.01, "bf16": 0.01, "int8": 0.03}


def with_metric(plugin: Plugin, options: SweepOptions, variant: str) -> Plugin:
    """The plug-in with the metric of the options in a variant's spec.

    Raises:
        UserError: the metric, its output or its labels are wrong, or the folder has a metrics.py.
    """
    if options.metric is None or variant not in plugin.spec.variants:
        return plugin
    if (plugin.folder / "metrics.py").is_file():
        raise UserError(f"--metric {options.metric}: {plugin.folder} has a metrics.py; remove one of them")
    spec = plugin.spec
    name, _, wanted = options.metric.partition(":")
    _check_name(name, options)
    output = _output(spec, variant, name, wanted)
    samples = spec.variants[variant].samples
    labels = None
    if options.labels is not None:
        path = Path(options.labels)
        given = read_labels(path, output.name)
        labels = check_labels(given, path, name, output, samples, all_=options.model_file is not None)
    metric = {
        "name": name,
        "threshold": options.threshold if options.threshold is not None else THRESHOLDS.get(name),
        "drop": dict.fromkeys(DROPS, options.drop)
        if options.drop is not None
        else _drops(name, labels, samples),
        "output": output.name,
        "labels": options.labels,
        "made_up": options.model_file is not None and options.samples is None,
    }
    data = spec.model_dump()
    data["variants"][variant]["metric"] = metric
    try:
        return plugin.model_copy(update={"spec": ModelSpec.model_validate(data, context=RULES)})
    except ValidationError as error:
        raise UserError(f"--metric: {explain(error, ModelSpec)}") from error


def sample_labels(plugin: Plugin, metric: Metric, output: Tensor, samples: int) -> Array | None:
    """The labels of a stock metric's file for the samples; None: it has no file.

    Raises:
        UserError: the file is missing or wrong.
    """
    if metric.labels is None:
        return None
    path = plugin.folder / metric.labels
    return check_labels(read_labels(path, output.name), path, metric.name, output, samples, all_=False)


def _check_name(name: str, options: SweepOptions) -> None:
    from sklearn.metrics import get_scorer_names  # takes a second

    known = (*OWN, *(scorer for scorer in get_scorer_names() if scorer not in CLUSTERING))
    if name not in known:
        raise unknown("metric (--metric)", name, known)
    if name in WITH_FRAMEWORK and options.labels is not None:
        raise UserError(f"--metric {name}: it compares with the framework's answers: leave out --labels")
    if name not in WITH_FRAMEWORK and options.labels is None and options.model_file is not None:
        raise UserError(
            f"--metric {name}: it needs --labels; without labels there are {' and '.join(WITH_FRAMEWORK)}"
        )


def _output(spec: ModelSpec, variant: str, metric: str, wanted: str) -> Tensor:
    outputs = {t.name: t for t in spec.interface(spec.variants[variant].parameters).outputs}
    if wanted and wanted not in outputs:
        raise unknown(f"output (--metric {metric}:{wanted})", wanted, outputs, in_order=True)
    if not wanted and len(outputs) > 1:
        raise UserError(
            f"--metric {metric}: which output? give {metric}:OUTPUT with one of {', '.join(outputs)}"
        )
    return outputs[wanted or next(iter(outputs))]


def _drops(metric: str, labels: Array | None, samples: int) -> dict[str, float]:
    """Shares of the best score, which is 1, and of an error that is as large as the labels' spread; in less
    than fp32 one sample may change its class."""
    assert set(DROPS) == set(get_args(Precision))
    if of_numbers(metric) and metric.startswith("neg_") and labels is not None:
        spread = float(np.std(labels)) or 1.0
        scale = spread**2 if "mean_squared_error" in metric and "root" not in metric else spread
        return {precision: share * scale for precision, share in DROPS.items()}
    return {
        precision: share if precision == "fp32" else max(share, 1 / samples)
        for precision, share in DROPS.items()
    }
