"""The nnU-Net plug-in's data: the Decathlon's volumes, batches, Dice on known volumes, client patches."""

import gzip
import re
import struct
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


def write_nifti(path: Path, values: Any, order: str = "<", slope: float = 1, spacing: float = 1) -> None:
    """A gzipped NIfTI-1 file, field by field from nifti1.h; values have the axes x, y, z[, channel]."""
    codes = {"uint8": 2, "int16": 4, "float32": 16, "float64": 64}
    dim = [values.ndim, *values.shape, *[1] * (7 - values.ndim)]
    header = bytearray(352)
    struct.pack_into(f"{order}i", header, 0, 348)
    struct.pack_into(f"{order}8h", header, 40, *dim)
    struct.pack_into(f"{order}2h", header, 70, codes[values.dtype.name], values.itemsize * 8)
    struct.pack_into(f"{order}4f", header, 76, 1, *[spacing] * 3)
    struct.pack_into(f"{order}3f", header, 108, 352, slope, 0)
    header[344:348] = b"n+1\0"
    # The first axis runs fastest: the last one is the slowest, so the file is the transpose, row by row.
    body = b"".join(np.asarray(v, values.dtype.newbyteorder(order)).tobytes() for v in values.T)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(bytes(header) + body, 1))


def write_cases(sources: Path, count: int) -> Path:
    """A folder as the Decathlon's task 1 unpacks: heads of other places and extents, zero outside."""
    task = sources / "Task01_BrainTumour"
    rng = np.random.default_rng(0)
    (sources / CHECKPOINT).write_text("weights")
    for index in range(count):
        shape, head = (14, 13, 12), tuple(rng.integers(5, 12, 3))
        at = tuple(slice(1, 1 + extent) for extent in head)
        image, label = np.zeros((*shape, 4), np.int16), np.zeros(shape, np.uint8)
        image[at] = rng.integers(1, 900, (*head, 4))
        label[at] = rng.integers(0, 4, head)
        case = f"BRATS_{index:03}.nii.gz"
        order = "<>"[index % 2]
        write_nifti(task / "imagesTr" / case, image, order)
        write_nifti(task / "labelsTr" / case, label if index % 3 else label.astype(np.float32), order)
        (task / "imagesTr" / f"._{case}").write_bytes(b"macOS")
    return task


PARAMETERS = {"channels": 4, "classes": 4, "size": 8, "levels": 3, "filters": 2}


def expected(values: Any, box: list[Any], fill: Any) -> Any:
    """The cube of 8 around a box's middle, z first, voxel by voxel."""
    cube = np.zeros((8, 8, 8))
    for z, y, x in np.ndindex(8, 8, 8):
        place = []
        for (low, high), at in zip(box, (x, y, z), strict=True):
            extent = high - low
            # Longer: (extent - 8 + 1) // 2 voxels are cut off in front. Shorter: (8 - extent) // 2 are added.
            place.append(low + at + (extent - 7) // 2 if extent >= 8 else low + at - (8 - extent) // 2)
        within = all(low <= at < high for (low, high), at in zip(box, place, strict=True))
        cube[z, y, x] = fill(values[tuple(place)]) if within else 0
    return cube


def test_full_takes_the_middle_of_the_published_fold_from_nifti(tmp_path: Path, modules: Any) -> None:
    task = write_cases(tmp_path, 12)
    files = modules("prepare").prepare("full", tmp_path / "out", tmp_path, PARAMETERS)
    files = {key: str(tmp_path / "out" / name) for key, name in files.items()}
    assert Path(files.pop("checkpoint")).read_text() == "weights"
    held_out = modules("cases").held_out_cases(task)
    assert len(held_out) == 2
    ((ids, x, y_real),) = modules("dataloader").get_dataloader_fn(4, 8, batch_size=64, **files)()
    assert ids.tolist() == list(range(len(held_out)))
    rng, written = np.random.default_rng(0), {}
    for index in range(12):  # the same draws as in write_cases: the file's own bytes are not read again
        head = tuple(rng.integers(5, 12, 3))
        written[f"BRATS_{index:03}"] = (rng.integers(1, 900, (*head, 4)), rng.integers(0, 4, head))
    for case, image, label in zip(held_out, x["INPUT__0"], y_real["OUTPUT__0"], strict=True):
        intensities, classes = written[case]
        box = [(0, extent) for extent in classes.shape]
        np.testing.assert_array_equal(label, expected(classes, box, int))
        for channel in range(4):
            values = intensities[..., channel].astype(np.float64)
            mean, deviation = values.mean(), values.std()
            cube = expected(values, box, lambda v, m=mean, d=deviation: (v - m) / d)
            np.testing.assert_allclose(image[channel], cube, atol=1e-5)


def test_stored_numbers_are_scaled_and_bad_files_named(tmp_path: Path, modules: Any) -> None:
    read = modules("nifti").read_nifti
    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    path = tmp_path / "a.nii.gz"
    for slope, factor in ((1, 1), (0, 1), (0.5, 0.5)):
        write_nifti(path, values, ">", slope)
        np.testing.assert_array_equal(read(path)[0], values * factor)
    whole = gzip.decompress(path.read_bytes())
    for data in (gzip.compress(whole[:-1]), gzip.compress(b"\0" * 400), b"plain", gzip.compress(b"")):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"a\.nii\.gz"):
            read(path)


def test_fold_is_that_of_the_published_split(tmp_path: Path, modules: Any) -> None:
    # From sklearn.model_selection.KFold(5, shuffle=True, random_state=12345), fold 2 of 484 cases.
    (tmp_path / "imagesTr").mkdir()
    for index in range(484):
        (tmp_path / "imagesTr" / f"BRATS_{index:03}.nii.gz").touch()
    held_out = modules("cases").held_out_cases(tmp_path)
    numbers = [int(case.removeprefix("BRATS_")) for case in held_out]
    assert len(numbers) == 97
    assert numbers[:10] == [7, 8, 13, 14, 15, 21, 26, 39, 42, 44]
    assert numbers[-3:] == [477, 478, 479]


def test_wrong_volumes_are_refused_with_file_and_remedy(tmp_path: Path, modules: Any) -> None:
    task = tmp_path / "Task01_BrainTumour"

    def refused(*expected: str) -> None:
        with pytest.raises(ValueError, match=r".*".join(map(re.escape, expected))):
            modules("prepare").prepare("full", tmp_path / "out", tmp_path, PARAMETERS)

    task.write_text("no folder")
    refused(str(task), "imagesTr", ".nii.gz")
    task.unlink()
    write_cases(tmp_path, 12)
    case = f"{modules('cases').held_out_cases(task)[0]}.nii.gz"
    for part, array, spacing, named in [
        ("labelsTr", np.full((14, 13, 12), 4, np.uint8), 1, ("whole numbers", "0", "3")),
        ("labelsTr", np.full((14, 13, 12), 0.5, np.float32), 1, ("whole numbers", "0", "3")),
        ("labelsTr", np.zeros((12, 13, 14), np.uint8), 1, ("(14, 13, 12)", "(12, 13, 14)")),
        ("imagesTr", np.ones((14, 13, 12, 3), np.int16), 1, ("(3, 12, 13, 14)", "4 channels")),
        ("imagesTr", np.zeros((14, 13, 12, 4), np.int16), 1, ("4 channels",)),
        ("imagesTr", np.ones((14, 13, 12), np.int16), 1, ("3 axes", "4")),
        ("imagesTr", np.ones((14, 13, 12, 4), np.int16), 2, ("2.0", "1 mm")),
    ]:
        path = task / part / case
        kept = path.read_bytes()
        write_nifti(path, array, spacing=spacing)
        refused(str(path), *named)
        path.write_bytes(kept)
    (task / "labelsTr" / case).unlink()
    refused(str(task / "labelsTr" / case))
    for path in sorted((task / "imagesTr").glob("B*"))[4:]:
        path.unlink()
    refused(str(task / "imagesTr"), "4", ".nii.gz", "5")
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
