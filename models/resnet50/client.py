"""Ask a served ResNet-50 what a picture shows: resize and crop it, send one request, print the answer."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
from digits import digit_images
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

TOP = 5
SAMPLE = 1400  # the digit that is sent where no picture is named; the tiny variant is not trained on it


def read_picture(path: str | None, height: int, width: int) -> NDArray[np.uint8]:
    """The network's input, uint8 [1, height, width, 3], from an image file, or of a sample digit."""
    if path is None:
        return digit_images(height, width)[0][SAMPLE : SAMPLE + 1]
    # Imported here: TensorFlow takes seconds to start, and the sample needs none.
    from images import decode, resize_and_crop

    return resize_and_crop(decode(Path(path).read_bytes(), path), height, width)[np.newaxis]


def describe(probabilities: NDArray[np.floating], names: Sequence[str]) -> str:
    """The likeliest classes of one image, best first, one a line; `names` may be empty."""
    best = np.argsort(-probabilities, kind="stable")[:TOP]
    return "\n".join(
        f"{probabilities[index]:7.2%}  {names[index] if index < len(names) else f'class {index}'}"
        for index in best
    )


def ask(url: str, model: str, path: str | None) -> NDArray[np.floating]:
    """Probabilities [num_classes] of one picture; its size and type are what the server's metadata say.

    Raises tritonclient.utils.InferenceServerException when the server refuses the request.
    """
    with grpc.InferenceServerClient(url) as client:
        (wanted,) = client.get_model_metadata(model).inputs
        _, height, width, _ = wanted.shape
        picture = read_picture(path, height, width).astype(triton_to_np_dtype(wanted.datatype))
        tensor = grpc.InferInput(wanted.name, list(picture.shape), wanted.datatype)
        tensor.set_data_from_numpy(picture)
        outputs = [grpc.InferRequestedOutput("probabilities")]
        return client.infer(model, [tensor], outputs=outputs).as_numpy("probabilities")[0]


def main() -> None:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001", help="host:port of the gRPC end point")
    parser.add_argument("--model", required=True, help="name of the served model")
    parser.add_argument("--image", help="JPEG, PNG, GIF or BMP file; a handwritten digit where none is named")
    parser.add_argument("--class-names", help="text file, the name of class 0 in its first line, and so on")
    options = parser.parse_args()
    names = Path(options.class_names).read_text(encoding="utf-8").splitlines() if options.class_names else []
    print(describe(ask(options.url, options.model, options.image), names))


if __name__ == "__main__":
    main()
