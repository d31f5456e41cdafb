"""The Wide & Deep plug-in: what the tiny variant learns, its data, its metrics and its client.

Everything that needs TensorFlow runs in a child process, with the plug-in's folder as its import path.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

pytestmark = pytest.mark.check

PLUG_IN = Path(__file__).parents[2] / "models" / "wide_and_deep"
OUT = "wide_deep_model"


# What the tiny variant learns --------------------------------------------------------------------------

# One process: the tiny variant; its recipe on labels that were shuffled; two short trainings alike.
TINY = """
import hashlib, json, sys
import numpy as np
from pathlib import Path
import prepare, tiny as training
from dataloader import get_dataloader_fn
from metrics import MetricsCalculator
from model import get_model
from columns import LABEL
tiny, folder = Path(sys.argv[1]), Path(sys.argv[2])
ids, x, y = next(get_dataloader_fn("tiny", 10**6, str(tiny / "valid"))())
def probabilities(place):
    _, call = get_model("tiny", 64, 2, "sum", str(place / "checkpoint"))
    return call(x)["wide_deep_model"].numpy()
def score(predicted):
    calculator = MetricsCalculator()
    calculator.update(ids, {"wide_deep_model": predicted}, x, y)
    return calculator.metrics
learned, train = probabilities(tiny), training.train
def blind(frame, *arguments):
    return train(frame.with_columns(frame[LABEL].shuffle(seed=1)), *arguments)
training.train = blind
prepare.prepare("tiny", folder / "shuffled", folder, {"epochs": 2})
training.train, prepare.TRAINING_DISPLAYS, digests = train, 200, []
for name in ("one", "two"):
    short = {"epochs": 1, "hidden_units": 8, "hidden_layers": 1}
    prepare.prepare("tiny", folder / name, folder, short)
    files = sorted(path for path in (folder / name).rglob("*") if path.is_file())
    digests.append(hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest())
scores = {
    "learned": score(learned),
    "rolled": score(np.roll(learned, 1, axis=0)),
    "constant": score(np.full_like(learned, 0.3)),
    "shuffled": score(probabilities(folder / "shuffled")),
}
print(json.dumps([scores, digests]))
"""


@pytest.fixture(scope="module")
def trained(prepared: Any, tmp_path_factory: pytest.TempPathFactory, child: Any) -> Any:
    """Scores by kind of guesser, digests of two short trainings."""
    return child(TINY, prepared("wide_and_deep"), tmp_path_factory.mktemp("wide_and_deep"))


def test_tiny_ranks_ads_that_it_never_saw_together(trained: Any) -> None:
    scores, _ = trained
    metric = yaml.safe_load((PLUG_IN / "model.yaml").read_text())["variants"]["tiny"]["metric"]
    assert metric["name"] == "auc"
    assert scores["learned"]["auc"] >= metric["threshold"] + 0.08
    assert scores["learned"]["map12"] >= 0.7


@pytest.mark.parametrize("guesser", ["rolled", "constant", "shuffled"])
def test_guessers_that_do_not_see_the_inputs_fail(trained: Any, guesser: str) -> None:
    scores, _ = trained
    # One of six ads is clicked: by chance the mean of 1/1 to 1/6, 0.408.
    assert scores[guesser]["auc"] <= 0.55
    assert scores[guesser]["map12"] <= 0.46


def test_tiny_is_reproducible_and_follows_the_seed(trained: Any, plug_in: Any) -> None:
    one, two = trained[1]
    assert one == two
    clicks = plug_in("clicks")

    def make(seed: int) -> pl.DataFrame:
        rng = np.random.default_rng(seed)
        return clicks.make_clicks(clicks.World(rng), 50, 8000, rng)

    assert make(0).equals(make(0))
    assert not make(0).equals(make(1))


# Data --------------------------------------------------------------------------------------------------


def write_rows(folder: Path, plug_in: Any, **changes: Any) -> Path:
    """Three rows with every published column, as the published preprocessing writes them, some changed."""
    columns = plug_in("columns")
    rows: dict[str, Any] = {c: np.array([0.25, 0.5, 0.75], dtype=np.float32) for c in columns.NUMERIC}
    rows |= {c: np.array([1, 2, 3], dtype=np.int64) for c in columns.ONE_HOT}
    rows |= {c: [[4, 5, 6], [7], []] for c in columns.MULTI_HOT}
    rows |= {"clicked": np.array([0, 1, 0], dtype=np.int32), "display_id": [70, 70, 71]} | changes
    folder.mkdir(exist_ok=True)
    kept = {name: values for name, values in rows.items() if values is not None}
    overrides = {c: pl.List(pl.Int32) for c in columns.MULTI_HOT if c not in changes}
    pl.DataFrame(kept, schema_overrides=overrides).write_parquet(folder / "part_0.parquet")
    return folder


def test_loader_keeps_rows_labels_and_displays_together(tmp_path: Path, plug_in: Any) -> None:
    folder = write_rows(tmp_path / "valid", plug_in, topic_id_list=[[9, 8, 7], None, [1, 2]])
    pl.read_parquet(folder / "part_0.parquet").reverse().write_parquet(folder / "part_1.parquet")
    loader = plug_in("dataloader").get_dataloader_fn("published", 2, str(folder))
    for _ in range(2):
        batches = list(loader())
        assert [ids.tolist() for ids, _, _ in batches] == [[70, 70], [71], [71, 70], [70]]
        _, x, y = (batch for batch in batches[0])
        assert x["ad_id"].tolist() == [[1], [2]] and x["ad_id"].dtype == np.int32
        assert x["ad_id_ctr"].tolist() == [[0.25], [0.5]] and x["ad_id_ctr"].dtype == np.float32
        assert x["topic_id_list"].tolist() == [[9, 8, 7], [-1, -1, -1]]
        assert x["entity_id_list"].tolist() == [[4, 5, 6], [7, -1, -1]]
        assert batches[1][1]["topic_id_list"].tolist() == [[1, 2, -1]]
        assert y[OUT].tolist() == [[0.0], [1.0]] and y[OUT].dtype == np.float32
        assert batches[2][2][OUT].tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ad_id": None}, r"part_0\.parquet.*column ad_id"),
        ({"platform": ["a", "b", "c"]}, r"part_0\.parquet.*column platform\b.*String.*integer"),
        ({"topic_id_list": [1, 2, 3]}, "column topic_id_list.*Int64.*list of integers"),
        ({"ad_id_ctr": ["a", "b", "c"]}, "column ad_id_ctr.*String.*number"),
        ({"platform": [0, 4, 1]}, r"part_0\.parquet.*column platform\b.*0 to 4\b.*0 to 3\b"),
        ({"ad_id": [0, -1, 1]}, r"column ad_id\b.*-1 to 0\b.*0 to 249999\b"),
        ({"ad_id": [0, None, 1]}, r"part_0\.parquet.*column ad_id\b.*null"),
    ],
)
def test_wrong_data_is_refused(tmp_path: Path, plug_in: Any, changes: dict[str, Any], message: str) -> None:
    folder = write_rows(tmp_path / "valid", plug_in, **changes)
    with pytest.raises(ValueError, match=message):
        list(plug_in("dataloader").get_dataloader_fn("published", 2, str(folder))())


def test_missing_or_foreign_files_and_arguments_are_refused(tmp_path: Path, plug_in: Any) -> None:
    get = plug_in("dataloader").get_dataloader_fn
    with pytest.raises(ValueError, match=r"\*\.parquet"):
        get("published", 2, str(tmp_path))
    (tmp_path / "part_0.parquet").write_text("ad_id,clicked")
    with pytest.raises(ValueError, match=r"part_0\.parquet"):
        get("published", 2, str(tmp_path))
    with pytest.raises(ValueError, match="batch_size 0"):
        get("published", 0)
    with pytest.raises(ValueError, match=r"feature_set 'huge'.*published.*tiny"):
        get("huge", 2)


@pytest.mark.parametrize("feature_set", ["published", "tiny"])
def test_random_data_fits_the_interface(plug_in: Any, feature_set: str) -> None:
    columns = plug_in("columns")
    tables = columns.tables_of(feature_set)
    spec = yaml.safe_load((PLUG_IN / "model.yaml").read_text())
    loader = plug_in("dataloader").get_dataloader_fn(feature_set, 500)
    batches = iter(loader())
    (ids, x, y), (more, other, _) = next(batches), next(batches)
    again = next(loader())
    assert [ids.tolist(), more.tolist(), y] == [list(range(500)), list(range(500, 1000)), {}]
    assert [t["name"] for t in spec["inputs"]] == list(x)
    for tensor in spec["inputs"]:
        values = x[tensor["name"]]
        assert values.dtype == tensor["dtype"] and list(values.shape) == [500, *tensor["shape"][1:]]
        assert (values == again[1][tensor["name"]]).all() and (values != other[tensor["name"]]).any()
        if tensor["name"] in tables:
            assert values.min() >= (-1 if tensor["name"] in columns.MULTI_HOT else 0)
            assert values.max() < tables[tensor["name"]][0]
        else:
            assert np.abs(values).max() < 10  # far from half precision's 65504
    known = (x["topic_id_list"] >= 0).sum(axis=1)
    assert set(known) == {0, 1, 2, 3}
    assert (np.diff((x["topic_id_list"] >= 0).astype(int), axis=1) <= 0).all(), "padding stands at the end"


# Metrics -----------------------------------------------------------------------------------------------


def test_metrics_of_known_values(plug_in: Any) -> None:
    calculator = plug_in("metrics").MetricsCalculator()
    # Display 5 comes in two batches. Its clicks stand at places 1 and 3: (1/1 + 2/3) / 2 = 5/6.
    # Display 7: the click is second, 1/2. Display 9 has no click and does not count.
    column = lambda *values: {OUT: np.array(values, dtype=np.float16)[:, None]}  # noqa: E731
    calculator.update(np.array([5, 7, 5]), column(0.5, 0.25, 0.75), {}, column(0, 1, 1))
    calculator.update(np.array([9, 5, 7]), column(1.0, 0.25, 0.5), {}, column(0, 1, 0))
    # Pairs of a click (0.25, 0.75, 0.25) and another (0.5, 1.0, 0.5): right are 0.75 > 0.5, twice, of 9.
    assert calculator.metrics == pytest.approx({"map12": (5 / 6 + 1 / 2) / 2, "auc": 2 / 9})


def test_metrics_cut_at_twelve_and_equals_count_half(plug_in: Any) -> None:
    calculator = plug_in("metrics").MetricsCalculator()
    predicted = np.linspace(0.9, 0.1, 14)[:, None]
    label = np.zeros((14, 1))
    label[12] = 1  # the thirteenth place is not looked at
    calculator.update(np.full(14, 3), {OUT: predicted}, {}, {OUT: label})
    assert calculator.metrics == pytest.approx({"map12": 0.0, "auc": 1 / 13})
    calculator = plug_in("metrics").MetricsCalculator()
    first = np.tile([1.0, 0, 0, 0, 0, 0], 2000)[:, None]
    ids = np.repeat(np.arange(2000), 6)
    calculator.update(ids, {OUT: np.full_like(first, 0.5)}, {}, {OUT: first})
    # Though the click always comes first in the file: the mean of 1/1 to 1/6, within 3 standard errors.
    assert calculator.metrics["map12"] == pytest.approx(2.45 / 6, abs=0.02)
    assert calculator.metrics["auc"] == 0.5


def test_metrics_refuse_wrong_batches(plug_in: Any) -> None:
    calculator = plug_in("metrics").MetricsCalculator()
    with pytest.raises(ValueError, match="update"):
        _ = calculator.metrics
    one = {OUT: np.ones((2, 1))}
    with pytest.raises(ValueError, match=rf"y_real.*{OUT}"):
        calculator.update(np.arange(2), one, {}, {})
    with pytest.raises(ValueError, match=r"\(2,\).*\(2, 1\)"):
        calculator.update(np.arange(2), {OUT: np.ones(2)}, {}, one)
    with pytest.raises(ValueError, match="NaN"):
        calculator.update(np.arange(2), {OUT: np.full((2, 1), np.nan)}, {}, one)
    calculator.update(np.arange(2), one, {}, one)
    with pytest.raises(ValueError, match="label"):
        _ = calculator.metrics


# Client ------------------------------------------------------------------------------------------------


def test_client_makes_the_inputs_that_the_loader_makes(prepared: Any, plug_in: Any) -> None:
    client = plug_in("client")
    request = json.loads(client.SAMPLE.read_text())
    x = client.to_inputs(request)
    data = str(prepared("wide_and_deep") / "valid")
    ids, held_out, _ = next(plug_in("dataloader").get_dataloader_fn("tiny", 6, data)())
    assert len(set(ids)) == 1, "the sample is the first held-out display"
    assert set(x) == set(held_out)
    for name, values in held_out.items():
        assert x[name].dtype == values.dtype
        np.testing.assert_allclose(x[name], values, atol=1e-4)  # the sample's numbers are rounded


def test_client_ranks_and_refuses_incomplete_requests(plug_in: Any) -> None:
    client = plug_in("client")
    request = json.loads(client.SAMPLE.read_text())
    probabilities = np.array([[0.125], [0.5], [0.25], [0.75], [0.5], [0.0]], dtype=np.float16)
    numbers = [ad["ad_id"] for ad in request["ads"]]
    ranking = client.to_ranking(request, probabilities)
    assert [ad for ad, _ in ranking] == [numbers[i] for i in (3, 1, 4, 2, 0, 5)]
    assert [p for _, p in ranking] == [0.75, 0.5, 0.5, 0.25, 0.125, 0.0]
    with pytest.raises(ValueError, match=r"^ads"):
        client.to_inputs({"user": request["user"], "ads": []})
    with pytest.raises(ValueError, match=r"ad 0\b.*\b3\b.*topic_id_list"):
        client.to_inputs({**request, "user": request["user"] | {"topic_id_list": [1, 2, 3, 4]}})
    del request["ads"][1]["campaign_id"]
    with pytest.raises(ValueError, match=r"ad 1\b.*campaign_id"):
        client.to_inputs(request)
