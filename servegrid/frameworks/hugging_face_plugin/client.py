"""Sends one text, image or recording to the served model and prints its answer.

Needs numpy, tritonclient[grpc] and transformers, for an image also pillow:
python client.py --model NAME --text "..."
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
from processing import Processor  # type: ignore[import-not-found]  # a file of the same folder
from tritonclient.utils import triton_to_np_dtype

PROCESSOR = Path(__file__).parent / "processor"


def ask(url: str, model: str, sample: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of one sample, and the served model's outputs for it, by name."""
    with grpc.InferenceServerClient(url) as client:
        metadata = client.get_model_metadata(model)
        x = Processor(PROCESSOR, [tensor.name for tensor in metadata.inputs])([sample])
        inputs = []
        for tensor in metadata.inputs:
            array = x[tensor.name].astype(triton_to_np_dtype(tensor.datatype))
            inputs.append(grpc.InferInput(tensor.name, list(array.shape), tensor.datatype))
            inputs[-1].set_data_from_numpy(array)
        result = client.infer(model, inputs)
        return x, {tensor.name: result.as_numpy(tensor.name)[0] for tensor in metadata.outputs}


def readable(x: dict[str, Any], answer: dict[str, Any], labels: dict[str, str]) -> list[str]:
    """A line for each answer: a label, a label a token, the answering tokens, or an output's shape."""
    if "start_logits" in answer:
        from transformers import AutoTokenizer

        start = int(answer["start_logits"].argmax())
        end = start + int(answer["end_logits"][start:].argmax()) + 1
        tokenizer = AutoTokenizer.from_pretrained(PROCESSOR, local_files_only=True, trust_remote_code=False)
        return [f"answer: {tokenizer.decode(x['input_ids'][0, start:end])}"]
    lines = []
    for name, array in answer.items():
        if name == "logits" and array.shape[-1] == len(labels):
            best = np.atleast_1d(array.argmax(-1))
            lines.append(f"{name}: {' '.join(labels[str(i)] for i in best)}")
        else:
            lines.append(f"{name} {list(array.shape)}: {np.array2string(array.ravel()[:6], precision=4)}")
    return lines


def main() -> None:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of the gRPC end point")
    parser.add_argument("--model", required=True, help="name of the served model")
    for key in ("text", "text_pair", "image", "audio"):
        parser.add_argument(f"--{key.replace('_', '-')}")
    given = vars(parser.parse_args())
    url, model = given.pop("url"), given.pop("model")
    x, answer = ask(url, model, {key: value for key, value in given.items() if value is not None})
    config = json.loads((PROCESSOR / "config.json").read_text(encoding="utf-8"))
    print("\n".join(readable(x, answer, config.get("id2label", {}))))


if __name__ == "__main__":
    main()
