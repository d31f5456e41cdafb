"""Ask a served nnU-Net for the tumour in a volume: normalise, send its patches, print classes and a slice."""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
from blobs import make_volume
from dice import dice_scores
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype
from volume import Volume, normalize, segment

SHADES = " .:-=+*#%@"  # dark to light
MARKS = "." + "123456789"  # background, then the classes


def read_volume(path: str) -> Volume:
    """Raw intensities of a .npy file, float32 [channels, depth, height, width]; zero is outside the head."""
    volume = np.load(path, allow_pickle=False)
    if volume.ndim != 4:
        raise ValueError(f"{path}: shape {volume.shape}, expected (channels, depth, height, width)")
    return volume.astype(np.float32)


def ask(
    client: grpc.InferenceServerClient, model: str, patches: Volume, datatype: str
) -> NDArray[np.generic]:
    """Logits [b, classes, size, size, size] of patches [b, channels, size, size, size], in one request."""
    tensor = grpc.InferInput("INPUT__0", list(patches.shape), datatype)
    tensor.set_data_from_numpy(patches.astype(triton_to_np_dtype(datatype)))
    answer: NDArray[np.generic] = client.infer(model, [tensor]).as_numpy("OUTPUT__0")
    return answer


def describe(image: Volume, classes: NDArray[np.uint8], real: NDArray[np.uint8] | None, count: int) -> str:
    """Voxels of each class, its Dice where the real classes are known, and the slice with the most of them.

    image: one channel, [depth, height, width]. The slice stands on the left, its classes on the right.
    """
    lines = [f"class {number}: {int((classes == number).sum())} voxels" for number in range(1, count)]
    if real is not None:
        scores = dice_scores(classes, real, count)
        lines = [f"{line}, Dice {score:.3f}" for line, score in zip(lines, scores, strict=True)]
    depth = int((classes > 0).sum(axis=(1, 2)).argmax())
    lines.append(f"slice {depth} of {len(classes)}:")
    span = float(np.ptp(image[depth])) or 1.0
    shade = ((image[depth] - image[depth].min()) / span * (len(SHADES) - 1)).round().astype(int)
    for light, marks in zip(shade, classes[depth], strict=True):
        lines.append("".join(SHADES[i] for i in light) + "  " + "".join(MARKS[i] for i in marks))
    return "\n".join(lines)


def main() -> None:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001", help="host:port of the gRPC end point")
    parser.add_argument("--model", required=True, help="name of the served model")
    parser.add_argument("--volume", help="raw intensities, .npy [channels, D, H, W]; default: a made-up head")
    parser.add_argument("--labels", type=Path, help="real classes of --volume, .npy [D, H, W], for its Dice")
    arguments = parser.parse_args()
    with grpc.InferenceServerClient(arguments.url) as client:
        metadata = client.get_model_metadata(arguments.model)
        most = client.get_model_config(arguments.model).config.max_batch_size
        size, datatype = int(metadata.inputs[0].shape[-1]), metadata.inputs[0].datatype
        if arguments.volume:
            volume = read_volume(arguments.volume)
            real = np.load(arguments.labels, allow_pickle=False) if arguments.labels else None
        else:
            volume, real = make_volume(size * 3 // 2, np.random.default_rng(0))
        classes = segment(
            normalize(volume), size, most, lambda patches: ask(client, arguments.model, patches, datatype)
        )
    print(describe(volume[0], classes, real, int(metadata.outputs[0].shape[1])))


if __name__ == "__main__":
    main()
