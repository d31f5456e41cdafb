"""Writes the model folder that is made of a model file, to look at and to edit."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.yaml_files import dump_yaml
from servegrid.host.files import new_folder
from servegrid.plan.options import SweepOptions
from servegrid.plan.own_model import MODEL_FLAGS
from servegrid.sources.choosing import choose_plugins
from servegrid.store.site import Site


def write_folder(target: Path, options: SweepOptions, site: Site) -> Plugin:
    """The folder that a sweep with these options makes in the store, with a README; settings are in its
    model.yaml.

    Raises:
        UserError: the folder is not new, no model file is given, or it cannot be used; nothing is kept.
    """
    if options.model_file is None:
        raise UserError(f"a folder is made of a model file: give {' or '.join(MODEL_FLAGS)}")
    with new_folder(target) as fresh:
        (plugin,) = choose_plugins(options, site)
        shutil.copytree(plugin.folder, fresh, dirs_exist_ok=True)
        spec = plugin.spec
        if options.labels is not None:
            labels = Path("labels").with_suffix(Path(options.labels).suffix)
            shutil.copy(options.labels, fresh / labels)
            spec = _with_labels(spec, str(labels))
        if plugin.settings or options.metric is not None:
            (fresh / "model.yaml").write_text(dump_yaml(spec), encoding="utf-8")
        (fresh / "README.md").write_text(_readme(target, plugin, options), encoding="utf-8")
    return plugin.model_copy(update={"folder": target.absolute(), "settings": ()})


def _with_labels(spec: ModelSpec, labels: str) -> ModelSpec:
    """The spec with this file as labels of its metric."""
    variants = {
        name: variant.model_copy(update={"metric": variant.metric.model_copy(update={"labels": labels})})
        if variant.metric
        else variant
        for name, variant in spec.variants.items()
    }
    return spec.model_copy(update={"variants": variants})


def command(target: Path) -> str:
    """The command that runs a folder."""
    return shlex.join(["servegrid", "sweep", "--model-dir", str(target)])


def _readme(target: Path, plugin: Plugin, options: SweepOptions) -> str:
    return _README.format(
        name=plugin.spec.name,
        description=plugin.spec.description,
        made_by=shlex.join(["servegrid", "init", str(target), *options.anywhere().words]),
        runs=command(target),
    )


_README = """# {name}

A model folder {description}, by

```
{made_by}
```

`{runs}` builds, serves, proves and measures it.

| file | content | edit it to |
| --- | --- | --- |
| `model.yaml` | tensors, formats, precisions, tolerances, how it is served and measured | change them |
| `data/model.*`, `data/checkpoint/` | the model file, or the checkpoint | replace it by a newer one |
| `data/samples.npz` | an array for each input, the samples first; random if none were given | use real data |
| `dataloader.py` | gives the samples in batches | give labels, too |
| `prepare.py` | hands `data/` to the other stages | |

Only the stages that read a changed file or field are built again. For the verdict `passed` the model needs a
metric: give `--metric` and `--labels` to `servegrid init`, or add a `metrics.py`, labels in `dataloader.py`,
and `metric` to the variant in `model.yaml`. The page `models/README.md` of servegrid describes these files.
"""
