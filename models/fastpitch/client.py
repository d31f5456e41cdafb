"""Ask a served FastPitch to speak one text: send one request, write its mel as a picture."""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
from numpy.typing import NDArray
from speech import FRAME_STEP, SAMPLE_RATE, SILENCE
from text import encode, pad

SAMPLE = "the quiet queen found a golden key."
LOUDEST = 2.0  # log-mel that is white in the picture; LJSpeech's reach 2.06 (published triton/metrics.py)


def speak(url: str, model: str, text: str) -> NDArray[np.float32]:
    """Log-mels [80, frames] of a text; the number of tokens comes from the model's metadata.

    Raises ValueError when the text is too long or has digits, and tritonclient.utils.InferenceServerException
    when the server refuses the request.
    """
    with grpc.InferenceServerClient(url) as client:
        (entry,) = client.get_model_metadata(model).inputs
        tensor = grpc.InferInput(entry.name, [1, entry.shape[-1]], entry.datatype)
        tensor.set_data_from_numpy(pad([encode(text)], entry.shape[-1]))
        outputs = [grpc.InferRequestedOutput(name) for name in ("OUTPUT__0", "OUTPUT__1")]
        result = client.infer(model, [tensor], outputs=outputs)
    frames = int(result.as_numpy("OUTPUT__1").item())
    return result.as_numpy("OUTPUT__0")[0, :, :frames].astype(np.float32)


def picture(mel: NDArray[np.float32]) -> bytes:
    """A mel [80, frames] as a grey PGM picture: low notes at the bottom, silence black."""
    grey = np.clip((mel - SILENCE) / (LOUDEST - SILENCE), 0, 1) * 255
    return f"P5 {mel.shape[1]} {mel.shape[0]} 255\n".encode() + grey[::-1].round().astype(np.uint8).tobytes()


def main() -> None:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001", help="host:port of the gRPC end point")
    parser.add_argument("--model", required=True, help="name of the served model")
    parser.add_argument("--text", default=SAMPLE, help="what to say, numbers in words (default: %(default)r)")
    parser.add_argument("--output", type=Path, default=Path("mel.pgm"), help="picture to write")
    arguments = parser.parse_args()
    mel = speak(arguments.url, arguments.model, arguments.text)
    arguments.output.write_bytes(picture(mel))
    seconds = mel.shape[1] * FRAME_STEP / SAMPLE_RATE
    print(f"{mel.shape[1]} frames, {seconds:.2f} s of speech: {arguments.output}")


if __name__ == "__main__":
    main()
