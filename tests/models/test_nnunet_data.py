"""The nnU-Net plug-in's arrays: published cases, batches, Dice on known volumes, the client's patches."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.frameworks.plugin_steps import import_path

PLUG_IN = Path(__file__).parents[2] / "models" / "nnunet"
CHECKPOINT = "nvidia_nnunet_pyt_ckpt_amp_3d_fold2.ckpt"


@pytest.fixture
def modules() -> Iterator[Any]:
    """`modules(name)`: a file of the plug-in that needs no framework."""
    with import_path(PLUG_IN):
        yield import_module


# Published cases ---------------------------------------------------------------------------------------


def write_cases(sources: Path, count: int, shape: tuple[int, int, int] = (11, 8, 9)) -> None:
    """Write cases as the published preprocessing does; every channel of an image holds label + channel."""
    rng = np.random.default_rng(0)
    (sources / "01_3d").mkdir()
    (sources / CHECKPOINT).write_text("weights")
    for index in range(count):
        label = rng.integers(0, 4, (1, *shape), dtype=np.uint8)
        image = (label + np.arange(4).reshape(4, 1, 1, 1)).astype(np.float32)
        np.save(sources / "01_3d" / f"BRATS_{index:03}_x.npy", image)
        np.save(sources / "01_3d" / f"BRATS_{index:03}_y.npy", label)


PARAMETERS = {"channels": 4, "classes": 4, "size": 8, "levels": 3, "filters": 2}


def test_full_takes_the_middle_of_the_published_fold(tmp_path: Path, modules: Any) -> None:
    write_cases(tmp_path, 12)
    files = modules("prepare").prepare("full", tmp_path / "out", tmp_path, PARAMETERS)
    files = {key: str(tmp_path / "out" / name) for key, name in files.items()}
    assert Path(files.pop("checkpoint")).read_text() == "weights"
    held_out = modules("cases").held_out_cases(tmp_path / "01_3d")
    loader = modules("dataloader").get_dataloader_fn(4, 8, batch_size=64, **files)
    ((ids, x, y_real),) = loader()
    assert ids.tolist() == list(range(len(held_out)))
    for case, image, label in zip(held_out, x["INPUT__0"], y_real["OUTPUT__0"], strict=True):
        whole = np.load(tmp_path / "01_3d" / f"{case}_y.npy")[0]
        np.testing.assert_array_equal(label, whole[2:10, :, 1:9])  # spare 3, 0 and 1 voxels
        np.testing.assert_array_equal(image, label + np.arange(4).reshape(4, 1, 1, 1))


def test_fold_is_that_of_the_published_split(tmp_path: Path, modules: Any) -> None:
    # From sklearn.model_selection.KFold(5, shuffle=True, random_state=12345), fold 2 of 484 cases.
    for index in range(484):
        (tmp_path / f"BRATS_{index:03}_x.npy").touch()
    held_out = modules("cases").held_out_cases(tmp_path)
    numbers = [int(case.removeprefix("BRATS_")) for case in held_out]
    assert len(numbers) == 97
    assert numbers[:10] == [7, 8, 13, 14, 15, 21, 26, 39, 42, 44]
    assert numbers[-3:] == [477, 478, 479]


def test_wrong_layouts_are_refused_with_file_and_remedy(tmp_path: Path, modules: Any) -> None:
    folder = tmp_path / "01_3d"

    def refused(*expected: str) -> None:
        with pytest.raises(ValueError, match=r".*".join(map(re.escape, expected))):
            modules("prepare").prepare("full", tmp_path / "out", tmp_path, PARAMETERS)

    folder.write_text("no folder")
    refused(str(folder), "<case>_x.npy")
    folder.unlink()
    write_cases(tmp_path, 12)
    case = folder / modules("cases").held_out_cases(folder)[0]
    for path, array, named in [
        ("y", np.full((1, 11, 8, 9), 4, np.uint8), ("whole numbers", "0", "3")),
        ("y", np.zeros((1, 11, 8, 9), np.float32), ("whole numbers", "0", "3")),
        ("x", np.zeros((4, 11, 8, 9), np.int16), ("floats", "int16")),
        ("x", np.zeros((4, 11, 7, 9), np.float32), ("(4, 11, 7, 9)", "(4, D, H, W)")),
        ("x", np.array([{}]), ("array of numbers",)),
    ]:
        kept = Path(f"{case}_{path}.npy").read_bytes()
        np.save(f"{case}_{path}.npy", array)
        refused(f"{case}_{path}.npy", *named)
        Path(f"{case}_{path}.npy").write_bytes(kept)
    Path(f"{case}_y.npy").unlink()
    refused(f"{case}_y.npy")
    for path in sorted(folder.glob("*_x.npy"))[4:]:
        path.unlink()
    refused(str(folder), "4", "<case>_x.npy", "5")
    with pytest.raises(ValueError, match=r"variant.*'huge'"):
        modules("prepare").prepare("huge", tmp_path / "out", tmp_path, {})


# Batches -----------------------------------------------------------------------------------------------


def test_batches_keep_order_and_pairs(tmp_path: Path, modules: Any) -> None:
    images = np.arange(5 * 2 * 64, dtype=np.float32).reshape(5, 2, 4, 4, 4)
    labels = np.arange(5, dtype=np.uint8).repeat(64).reshape(5, 4, 4, 4)
    np.save(tmp_path / "v.npy", images)
    np.save(tmp_path / "l.npy", labels)
    files = {"volumes": str(tmp_path / "v.npy"), "labels": str(tmp_path / "l.npy")}
    make = modules("dataloader").get_dataloader_fn
    for _ in range(2):
        batches = list(make(2, 4, batch_size=2, **files)())
        assert [ids.tolist() for ids, _, _ in batches] == [[0, 1], [2, 3], [4]]
        np.testing.assert_array_equal(np.concatenate([x["INPUT__0"] for _, x, _ in batches]), images)
        np.testing.assert_array_equal(np.concatenate([y["OUTPUT__0"] for _, _, y in batches]), labels)
    with pytest.raises(ValueError, match="batch_size 0"):
        make(2, 4, batch_size=0, **files)
    with pytest.raises(ValueError, match=r"\(n, 4\).*\(n\).*\(4, 4, 4\)"):
        make(4, 4, batch_size=2, **files)


def test_without_files_batches_are_seeded_noise_in_a_ball_without_end(modules: Any) -> None:
    make = modules("dataloader").get_dataloader_fn
    one, other = make(4, 16, batch_size=3)(), make(4, 16, batch_size=3)()
    for number in range(50):
        (ids, x, y_real), (_, same, _) = next(one), next(other)
        image = x["INPUT__0"]
        assert ids.tolist() == [3 * number, 3 * number + 1, 3 * number + 2] and y_real == {}
        assert image.shape == (3, 4, 16, 16, 16) and image.dtype == np.float32
        np.testing.assert_array_equal(image, same["INPUT__0"])
        inside = image != 0
        assert inside[:, :, 8, 8, 8].all() and not inside[:, :, 0, 0, 0].any()
        assert 0.9 < image[inside].std() < 1.1
    assert not np.array_equal(image[0], image[1])


# Dice --------------------------------------------------------------------------------------------------


def test_dice_of_known_volumes(modules: Any) -> None:
    real, predicted = np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2, 3), np.uint8)
    real[0, 0, :], real[0, 1, :2] = 1, 2
    predicted[0, 0, :2], predicted[0, 1, :], predicted[1, 0, 0] = 1, 2, 3
    # Class 1: 2 of 3 found, none wrong: 4/5. Class 2: 2 of 2 and one more: 4/5. Class 3: there is none. Class
    # 4: neither has it. The published code, one class off, would give class 2's score for class 1.
    dice = modules("dice").dice_scores
    np.testing.assert_allclose(dice(predicted, real, 5), [0.8, 0.8, 0.0, 1.0])
    predicted[0, 1, 2] = 0
    np.testing.assert_allclose(dice(predicted, real, 5), [0.8, 1.0, 0.0, 1.0])
    np.testing.assert_allclose(dice(real, real, 3), [1.0, 1.0])
    with pytest.raises(ValueError, match="shape"):
        dice(predicted[0], real, 3)


def test_metric_averages_volumes_then_classes(modules: Any) -> None:
    real = np.zeros((3, 2, 2, 2), np.uint8)
    real[:, 0, 0] = 1
    real[:, 1, 1] = 2
    answer = real.copy()
    answer[1, 0, 0, 0] = 0  # 1 of 2 voxels of class 1: 2/3
    answer[2][real[2] == 2] = 1  # class 2 lost: 0; class 1 has 2 wrong voxels more: 2/3
    logits = (np.arange(3).reshape(1, 3, 1, 1, 1) == answer[:, None]).astype(np.float16)
    calculator = modules("metrics").MetricsCalculator(classes=3)
    with pytest.raises(ValueError, match="update"):
        _ = calculator.metrics
    for rows in (slice(0, 2), slice(2, 3)):
        calculator.update(np.arange(3)[rows], {"OUTPUT__0": logits[rows]}, {}, {"OUTPUT__0": real[rows]})
    by_class = {"dice_1": (1 + 4 / 3) / 3, "dice_2": 2 / 3}
    assert calculator.metrics == pytest.approx({"mean_dice": sum(by_class.values()) / 2, **by_class})
    with pytest.raises(ValueError, match=r"OUTPUT__0.*shape"):
        calculator.update([0], {"OUTPUT__0": logits[:1, :2]}, {}, {"OUTPUT__0": real[:1]})


# The client --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(9, 8, 13), (4, 16, 5), (8, 8, 8)])
def test_patches_cover_a_volume_of_any_size(modules: Any, shape: tuple[int, int, int]) -> None:
    real = np.random.default_rng(0).integers(0, 3, shape)
    counts = []

    def predict(patches: Any) -> Any:
        assert patches.shape[1:] == (1, 8, 8, 8)
        counts.append(len(patches))
        # A network that reads the class off each voxel; padding reads as class 0.
        return (np.arange(3).reshape(1, 3, 1, 1, 1) == patches).astype(np.float16)

    volume = real[None].astype(np.float32)
    np.testing.assert_array_equal(modules("volume").segment(volume, 8, 3, predict), real)
    # Steps of 4: over 9 voxels 2 patches, over 13 3, over 16 3, up to 8 1; at most 3 a request.
    assert counts == {9: [3, 3], 4: [3], 8: [1]}[shape[0]]


def test_a_patch_counts_most_in_its_middle(modules: Any) -> None:
    # Two patches of 8 over 12 voxels disagree; each wins the half of the overlap that it is nearer to.
    answers = iter([1, 0])

    def predict(patches: Any) -> Any:
        first = next(answers)
        return np.stack([np.full((8, 8, 8), first), np.full((8, 8, 8), 1 - first)])[None]

    classes = modules("volume").segment(np.zeros((1, 12, 8, 8), np.float32), 8, 1, predict)
    assert classes[:, 4, 4].tolist() == [0] * 6 + [1] * 6


def test_client_reads_and_describes(tmp_path: Path, modules: Any) -> None:
    client = modules("client")
    np.save(tmp_path / "v.npy", np.ones((4, 2, 2, 3), np.int16))
    assert client.read_volume(str(tmp_path / "v.npy")).dtype == np.float32
    np.save(tmp_path / "v.npy", np.ones((2, 2, 3), np.int16))
    with pytest.raises(ValueError, match=r"v\.npy.*\(2, 2, 3\).*\(channels, depth"):
        client.read_volume(str(tmp_path / "v.npy"))
    image, classes = np.zeros((2, 2, 3), np.float32), np.zeros((2, 2, 3), np.uint8)
    image[1, 0] = [0, 5, 10]
    classes[1, 0] = [0, 1, 2]
    classes[0, 0, 0] = 1
    real = np.where(classes == 1, 0, classes)
    lines = client.describe(image, classes, None, 3).splitlines()
    assert lines[:3] == ["class 1: 2 voxels", "class 2: 1 voxels", "slice 1 of 2:"]
    assert lines[3:] == [f" {client.SHADES[4]}@  .12", "     ..."]
    lines = client.describe(image, classes, real, 3).splitlines()
    assert lines[:2] == ["class 1: 2 voxels, Dice 0.000", "class 2: 1 voxels, Dice 1.000"]
