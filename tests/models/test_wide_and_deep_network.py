"""The Wide & Deep network: published shapes and names, checkpoints, and what it computes.

TensorFlow runs in child processes, with the plug-in's folder as their import path.
"""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.check

PLUG_IN = Path(__file__).parents[2] / "models" / "wide_and_deep"


# Rows and widths: DeepLearningExamples, WideAndDeep/data/outbrain/features.py (HASH_BUCKET_SIZES and
# EMBEDDING_DIMENSIONS, May 2022). Hidden units: its triton/model.py. Names: see checkpoint.py.
WRITER = """
import json, sys, numpy as np, tensorflow as tf
PUBLISHED = {
    "ad_id": (250000, 128), "document_id": (300000, 128), "platform": (4, 19),
    "document_id_promo": (100000, 128), "campaign_id": (5000, 128), "advertiser_id": (2500, 64),
    "source_id": (4000, 64), "geo_location": (2500, 64), "geo_location_country": (300, 64),
    "geo_location_state": (2000, 64), "publisher_id": (1000, 64), "source_id_promo": (4000, 64),
    "publisher_id_promo": (1000, 64), "topic_id_list": (350, 64), "entity_id_list": (10000, 64),
    "category_id_list": (100, 64),
}
def shapes(tables, units, layers):
    wide, deep = "model/linear_model/layer_with_weights-0", "model/dnn_model/layer_with_weights-"
    found = {f"{wide}/{c}.Sembedding_weights": (rows, 1) for c, (rows, _) in tables.items()}
    found |= {f"{wide}/numeric.Sembedding_weights": (13, 1), f"{wide}/bias": (1,)}
    found |= {f"{deep}0/{c}.Sembedding_weights": shape for c, shape in tables.items()}
    widths = [13 + sum(w for _, w in tables.values()), *[units] * layers, 1]
    for i, (a, b) in enumerate(zip(widths, widths[1:]), start=1):
        found |= {f"{deep}{i}/kernel": (a, b), f"{deep}{i}/bias": (b,)}
    return found
def values(shapes):
    rng = np.random.default_rng(1)
    return {n: rng.standard_normal(s, dtype=np.float32) / 4 for n, s in shapes.items()}
def write(folder, arrays, step="ckpt-20"):
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    tensors = {n + end: a for n, a in arrays.items()}
    one = np.zeros(1, np.float32)
    bias = "model/dnn_model/layer_with_weights-1/bias/.OPTIMIZER_SLOT/deep_optimizer/rms"
    more = [bias, "deep_optimizer/iter", "wide_optimizer/learning_rate", "current_step", "save_counter"]
    tensors |= {n + end: one for n in more}
    tensors["_CHECKPOINTABLE_OBJECT_GRAPH"] = np.array(b"graph")
    tf.io.gfile.makedirs(folder)
    tf.raw_ops.SaveV2(prefix=f"{folder}/{step}", tensor_names=list(tensors),
                      shape_and_slices=[""] * len(tensors), tensors=list(tensors.values()))
    with open(f"{folder}/checkpoint", "w") as file:
        file.write(f'model_checkpoint_path: "{step}"')
"""

FULL = (
    WRITER
    + """
from model import get_model
sizes = shapes(PUBLISHED, 1024, 5)
arrays = values(sizes)
write(sys.argv[1], arrays)
model, _ = get_model("published", 1024, 5, "sum", sys.argv[1])
left = {id(v): v for v in model.variables}
wide, deep = model.get_layer("wide"), model.get_layer("deep_input")
dense = [l for l in model.layers if hasattr(l, "kernel")]
def same(variable, name):
    left.pop(id(variable))
    return bool((np.asarray(variable) == arrays[name]).all())
first, other = "model/linear_model/layer_with_weights-0", "model/dnn_model/layer_with_weights-"
right = [same(wide.numeric, f"{first}/numeric.Sembedding_weights"), same(wide.bias, f"{first}/bias")]
for c in PUBLISHED:
    right.append(same(wide.tables[c], f"{first}/{c}.Sembedding_weights"))
    right.append(same(deep.tables[c], f"{other}0/{c}.Sembedding_weights"))
for i, layer in enumerate(dense, start=1):
    right += [same(layer.kernel, f"{other}{i}/kernel"), same(layer.bias, f"{other}{i}/bias")]
kernels = [list(layer.kernel.shape) for layer in dense]
print(json.dumps([all(right), len(right), len(left), model.count_params(), kernels]))
"""
)


def test_full_loads_the_published_names_and_shapes_completely(tmp_path: Path, child: Any) -> None:
    folder = tmp_path / "checkpoint"
    right, checked, left, parameters, kernels = child(FULL, folder)
    for file in folder.iterdir():
        file.unlink()  # 370 MB
    # 16 tables in each part, 13 numbers and a bias in the wide one, 6 dense layers.
    assert [right, checked, left] == [True, 16 * 2 + 2 + 6 * 2, 0]
    # By hand: embeddings 128 * 655 000 + 64 * (17 300 + 10 450) + 19 * 4 = 85 616 076; wide part
    # 682 754 ids + 13 + 1; dense (1235 + 13) * 1024 + 1024, 4 * 1 049 600, 1025. Published: about 90 million.
    assert parameters == 85_616_076 + 682_768 + 1_278_976 + 4_198_400 + 1_025 == 91_777_245
    assert kernels == [[1248, 1024], *[[1024, 1024]] * 4, [1024, 1]]
    # Of a sample: 2 FLOPs a weight of the dense layers.
    assert sum(2 * a * b for a, b in kernels) == 10_946_560


# One process. First checkpoints of small tables with one thing changed each, and the errors that follow; then
# the network's probabilities against NumPy in float64, from the same values; then random weights.
SMALL = (
    WRITER
    + """
from pathlib import Path
from dataloader import get_dataloader_fn
from model import get_model
from columns import TINY
folder, results = Path(sys.argv[1]), {}
extra = "model/dnn_model/layer_with_weights-9/kernel"
wrong = "model/linear_model/layer_with_weights-0/ad_id.Sembedding_weights"
def attempt(change, **sizes):
    arrays = values(shapes(TINY, 8, 1))
    place = str(folder / change)
    if change == "missing":
        del arrays["model/dnn_model/layer_with_weights-2/bias"]
    if change == "extra":
        arrays[extra] = np.zeros((2, 2), np.float32)
    if change == "shape":
        arrays[wrong] = np.zeros((7, 1), np.float32)
    if change != "empty":
        write(place, arrays)
    if change == "cut":
        data = folder / change / "ckpt-20.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:100])
    if change == "index":
        (folder / change / "ckpt-20.index").write_bytes(b"x" * 200)
    try:
        get_model("tiny", 8, 1, sizes.get("combiner", "sum"), place)
        results[change] = "loaded"
    except ValueError as error:
        results[change] = str(error).replace(str(folder), "F")
for change in ("none", "missing", "extra", "shape", "empty", "cut", "index"):
    attempt(change)
attempt("combiner", combiner="max")
arrays = values(shapes(TINY, 8, 2))
write(str(folder / "forward"), arrays)
_, x, _ = next(get_dataloader_fn("tiny", 50)())
numbers = sorted(c for c in x if c not in TINY)
def pooled(place, column, mean):
    table, rows = arrays[f"{place}/{column}.Sembedding_weights"].astype(float), []
    for ids in x[column]:
        known = [table[i] for i in ids if i >= 0]
        total = sum(known, np.zeros(table.shape[1]))
        rows.append(total / max(len(known), 1) if mean and x[column].shape[1] > 1 else total)
    return np.array(rows)
def expected(mean):
    wide, deep = "model/linear_model/layer_with_weights-0", "model/dnn_model/layer_with_weights-"
    logit = sum(pooled(wide, c, False) for c in TINY) + arrays[f"{wide}/bias"]
    logit = logit + np.hstack([x[c] for c in numbers]) @ arrays[f"{wide}/numeric.Sembedding_weights"]
    # TensorFlow's feature columns are called "<column>_embedding", and stand sorted by that.
    parts = {c: x[c] for c in numbers} | {f"{c}_embedding": pooled(f"{deep}0", c, mean) for c in TINY}
    h = np.hstack([parts[name] for name in sorted(parts)])
    for i in (1, 2):
        h = np.maximum(h @ arrays[f"{deep}{i}/kernel"] + arrays[f"{deep}{i}/bias"], 0)
    logit = logit + h @ arrays[f"{deep}3/kernel"] + arrays[f"{deep}3/bias"]
    return 1 / (1 + np.exp(-logit))
def apart(combiner):
    _, call = get_model("tiny", 8, 2, combiner, str(folder / "forward"))
    (name, y), = call(x).items()
    assert name == "wide_deep_model" and y.shape == (50, 1)
    return float(np.abs(y.numpy() - expected(combiner == "mean")).max())
random = [get_model("tiny", 8, 2, "sum") for _ in range(2)]
one, two = (call(x)["wide_deep_model"].numpy() for _, call in random)
layers = [random[0][0].get_layer(name) for name in ("wide", "deep_input")]
means = {float(np.asarray(t).mean()) for layer in layers for t in layer.tables.values()}
between = float(np.abs(expected(True) - expected(False)).max())
forward = [apart("sum"), apart("mean"), bool((one == two).all()), float(one.std()), len(means), between]
print(json.dumps([results, forward]))
"""
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, child: Any) -> tuple[dict[str, str], list[Any]]:
    """Errors by change to the checkpoint, and what the script says of its computations."""
    results, forward = child(SMALL, tmp_path_factory.mktemp("small"))
    return results, forward


def test_other_checkpoints_are_refused(small: tuple[dict[str, str], list[Any]]) -> None:
    results, _ = small
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert results["none"] == "loaded"
    fits = "ckpt-20 does not fit the network; "
    assert results["missing"] == f"F/missing/{fits}missing: model/dnn_model/layer_with_weights-2/bias{end}"
    assert results["extra"] == f"F/extra/{fits}unexpected: model/dnn_model/layer_with_weights-9/kernel{end}"
    table = f"model/linear_model/layer_with_weights-0/ad_id.Sembedding_weights{end}"
    assert results["shape"] == f"F/shape/{fits}wrong shapes: {table} has (7, 1), expected (240, 1)"
    assert results["empty"].startswith("F/empty: no TensorFlow checkpoint; expected a folder with the files")
    for change in ("cut", "index"):
        assert results[change].startswith(f"F/{change}/ckpt-20: cannot be read; expected the files")
    assert results["combiner"] == "combiner 'max': expected sum or mean"


def test_network_computes_the_published_function(small: tuple[dict[str, str], list[Any]]) -> None:
    by_sum, by_mean, *_, between = small[1]
    assert by_sum < 1e-6
    assert by_mean < 1e-6
    assert between > 1e-3, "sum and mean differ on this data"


def test_random_weights_are_repeatable_and_differ_from_table_to_table(
    small: tuple[dict[str, str], list[Any]],
) -> None:
    _, _, repeatable, spread, distinct, _ = small[1]
    assert repeatable
    assert spread > 0.01
    assert distinct == 32
