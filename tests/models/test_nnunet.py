"""The nnU-Net plug-in: published checkpoints, what the tiny variant learns, and that blind guessers fail.

Everything that needs PyTorch runs in a child process, with the plug-in's folder as its import path.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.frameworks.plugin_steps import import_path

pytestmark = pytest.mark.check

PLUG_IN = Path(__file__).parents[2] / "models" / "nnunet"
SCRIPTS = Path(__file__).parent / "nnunet"
THRESHOLD = 0.85  # of mean Dice, in model.yaml


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, child: Any) -> Any:
    return child(SCRIPTS / "check_network.py", tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def tiny(prepared: Callable[[str], Path]) -> Path:
    return prepared("nnunet")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `learned` writes model.onnx to."""
    return tmp_path_factory.mktemp("artifact")


@pytest.fixture(scope="module")
def learned(tiny: Path, artifact: Path, child: Any) -> Any:
    return child(SCRIPTS / "check_learning.py", tiny, artifact)


@pytest.fixture(scope="module")
def modules() -> Iterator[Any]:
    """`modules(name)`: a file of the plug-in that needs no framework."""
    with import_path(PLUG_IN):
        yield import_module


# Checkpoints and the plan ------------------------------------------------------------------------------


def test_published_checkpoint_of_full_size_loads_completely(network: Any) -> None:
    widths = [32, 64, 128, 256, 320, 320]
    weights = 27 * (4 * 32 + 32 * 32) + 4 * 32  # two convolutions, two norms of a scale and a shift
    weights += sum(27 * (a * b + b * b) + 4 * b for a, b in pairwise(widths))
    weights += sum(8 * b * a + a + 27 * 3 * a * a + 4 * a for a, b in pairwise(widths))
    weights += 32 * 4 + 4
    assert weights == 31_192_868
    assert network["full"] == {
        "names": {"inputs": ["INPUT__0"], "outputs": ["OUTPUT__0"]},
        "training": False,
        "parameters": weights,
        "complete": True,
    }


def test_full_network_follows_the_published_plan(network: Any) -> None:
    # Patches of 128 with spacing 1 are halved five times, down to 4; the rule then ends (depth 5).
    widths, sizes = [32, 64, 128, 256, 320, 320], [128, 64, 32, 16, 8, 4]
    plan = network["plan"]
    assert plan["kernels"] == [[3, 3, 3]] * 6
    assert plan["strides"] == [[1, 1, 1]] + [[2, 2, 2]] * 5
    assert plan["levels"] == [[w, s, s, s] for w, s in zip(widths, sizes, strict=True)]
    assert plan["output"] == [1, 4, 128, 128, 128]
    voxels = [size**3 for size in sizes]
    products = 27 * voxels[0] * (4 * 32 + 32 * 32) + voxels[0] * 32 * 4
    for (a, b), (outer, inner) in zip(pairwise(widths), pairwise(voxels), strict=True):
        products += 27 * inner * (a * b + b * b)  # down
        products += 8 * inner * b * a + 27 * outer * 3 * a * a  # up, then both halves of the channels
    assert plan["flops"] == 2 * products == 965_603_229_696


def test_loaded_weights_compute_the_published_network(network: Any) -> None:
    # Under the names of 2021 and of DynUNet; fp32 resolves 1e-7 per operation.
    assert max(network["apart"]) < 1e-5


def test_wrong_checkpoints_are_refused(network: Any) -> None:
    refused, fit = network["refused"], "FILE does not fit the network of model.yaml; "
    assert refused["missing"] == fit + "missing keys: output_block.conv.conv.bias"
    assert refused["extra"] == fit + "unexpected keys: loss.weight"
    assert refused["shape"] == fit + "wrong shapes: output_block.conv.conv.bias has (1,), expected (3,)"
    assert refused["bare"] == 'FILE: expected {"state_dict": {"model.<name>": tensor, ...}}'
    for change in ("code", "junk"):
        assert refused[change].startswith("FILE: cannot be read as weights (")
        assert refused[change].endswith('write {"state_dict": ...} of the checkpoint alone with torch.save')


def test_random_weights_are_seeded_and_alive(network: Any) -> None:
    same, finite, deviation = network["random"]
    assert same and finite and 0.1 < deviation < 100


def test_normalisation_is_that_of_the_published_preprocessing(network: Any) -> None:
    assert network["normalized"] < 1e-5


# What tiny learns --------------------------------------------------------------------------------------


def test_tiny_reaches_its_threshold(learned: Any) -> None:
    assert learned["tiny"] >= THRESHOLD


def test_the_recipe_without_intensities_fails(learned: Any) -> None:
    assert learned["shuffled"] < 0.5


def test_training_is_reproducible_and_follows_the_seed(learned: Any) -> None:
    assert learned["same"] and learned["follows_seed"]


def mean_dice(modules: Any, predicted: Any, real: Any) -> float:
    dice = modules("dice").dice_scores
    return float(np.mean([dice(p, r, 4) for p, r in zip(predicted, real, strict=True)]))


def test_a_guesser_that_sees_no_image_fails(tiny: Path, modules: Any) -> None:
    # The likeliest class of each place, at the cut that does best in training.
    _, classes = modules("blobs").make_volumes(480, 12, seed=0)
    share = np.stack([(classes == number).mean(axis=0) for number in range(1, 4)])
    cuts = [np.where(share.max(0) > cut, share.argmax(0) + 1, 0) for cut in np.linspace(0.02, 0.5, 13)]
    best = max(cuts, key=lambda guess: mean_dice(modules, [guess] * 100, classes[:100]))
    real = np.load(tiny / "labels.npy")
    assert mean_dice(modules, [best] * len(real), real) < 0.5


def test_a_guesser_that_sees_single_voxels_fails(tiny: Path, modules: Any) -> None:
    # A linear discriminant of the four intensities: noise takes the neighbours to see through.
    volumes, classes = modules("blobs").make_volumes(480, 12, seed=0)
    x, y = np.moveaxis(volumes, 1, -1).reshape(-1, 4), classes.reshape(-1)
    means = np.stack([x[y == number].mean(axis=0) for number in range(4)])
    slopes = np.linalg.solve(np.cov((x - means[y]).T), means.T)
    offsets = np.log(np.bincount(y) / len(y)) - (slopes * means.T).sum(axis=0) / 2
    real = np.load(tiny / "labels.npy")
    seen = np.moveaxis(np.load(tiny / "volumes.npy"), 1, -1)
    assert mean_dice(modules, (seen @ slopes + offsets).argmax(axis=-1), real) < 0.75


# Data of tiny ------------------------------------------------------------------------------------------


def test_tiny_volumes_line_up_with_their_labels(tiny: Path, modules: Any) -> None:
    volumes, labels = np.load(tiny / "volumes.npy"), np.load(tiny / "labels.npy")
    assert volumes.shape == (200, 4, 12, 12, 12) and volumes.dtype == np.float32
    assert labels.shape == (200, 12, 12, 12) and labels.dtype == np.uint8
    assert min((label == number).sum() for label in labels for number in (1, 2, 3)) >= 4
    inside = volumes[:, 0] != 0
    assert not labels[~inside].any()
    for volume, label, head in zip(volumes, labels, inside, strict=True):
        assert abs(volume[:, head].mean(axis=1)).max() < 1e-4
        # The rim is bright in channel 1, the core is not (blobs.INTENSITIES).
        assert volume[1][label == 3].mean() > volume[1][label == 2].mean() + 0.5


# The client --------------------------------------------------------------------------------------------


def test_client_finds_the_tumour_in_a_served_volume(
    learned: Any, artifact: Path, tmp_path: Path, server: Any, interface: Any, modules: Any, child: Any
) -> None:
    axes = (-1, 4, 12, 12, 12)
    io = interface([("INPUT__0", "float16", axes)], [("OUTPUT__0", "float16", axes)])
    server_options = ("--url", server.running.grpc_url, "--model", server.load("nnunet_client", artifact, io))
    lines = child.output(child.start(PLUG_IN / "client.py", *server_options)).splitlines()
    scores = [float(line.split()[-1]) for line in lines[:3]]
    assert min(scores) > 0.7, lines  # a tumour half again as large as those that it was trained on
    # A volume of one's own: smaller than a patch along one axis, 2 x 2 patches along the others.
    volume, classes = modules("blobs").make_volume(18, np.random.default_rng(1))
    np.save(tmp_path / "volume.npy", volume[:, 4:14])
    again = child.start(PLUG_IN / "client.py", *server_options, "--volume", tmp_path / "volume.npy")
    lines = child.output(again).splitlines()
    for number in (1, 2, 3):
        found, real = int(lines[number - 1].split()[2]), int((classes[4:14] == number).sum())
        assert 0.6 * real < found < 1.6 * real, lines
