"""Sends the sample request to the served model and compares its answer with the framework's.

Needs numpy and tritonclient[grpc] only:  python client.py [--url HOST:PORT]
Exit codes: 0 the answer agrees, 1 it does not.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

HERE = Path(__file__).resolve().parent


def wait(client: grpc.InferenceServerClient, model: str, seconds: float) -> None:
    """Wait until the model is loaded; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if client.is_model_ready(model, client_timeout=5.0):
                return
        except InferenceServerException:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"{model} was not ready within {seconds:g} s")
        time.sleep(0.1)


def ask(client: grpc.InferenceServerClient, model: str) -> dict[str, np.ndarray]:
    """The model's answer to sample_input.npz, by output."""
    metadata = client.get_model_metadata(model)
    with np.load(HERE / "sample_input.npz") as file:
        arrays = {name: file[name] for name in file}
    inputs = []
    for tensor in metadata.inputs:
        array = np.ascontiguousarray(
            arrays[tensor.name].astype(triton_to_np_dtype(tensor.datatype), copy=False)
        )
        if len(tensor.shape) > array.ndim:
            array = array[:, None]  # the server has an axis after the batch
        inputs.append(grpc.InferInput(tensor.name, list(array.shape), tensor.datatype))
        inputs[-1].set_data_from_numpy(array)
    result = client.infer(model, inputs)
    return {tensor.name: result.as_numpy(tensor.name) for tensor in metadata.outputs}


def alike(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays, padded with zeros to the longer of each axis: the length of an axis may depend on the
    rest of the batch."""
    if one.size == other.size:
        return one.reshape(other.shape), other
    longest = np.maximum(one.shape, other.shape)
    one = np.pad(one, [(0, missing) for missing in longest - one.shape])
    return one, np.pad(other, [(0, missing) for missing in longest - other.shape])


def main() -> int:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of the gRPC end point")
    parser.add_argument("--wait", type=float, default=60, help="seconds to wait for the model")
    args = parser.parse_args()
    certificate = json.loads((HERE / "certificate.json").read_text(encoding="utf-8"))
    with grpc.InferenceServerClient(args.url) as client, np.load(HERE / "expected_output.npz") as expected:
        wait(client, certificate["model"], args.wait)
        answer = ask(client, certificate["model"])
        largest = 0.0
        for name in expected:
            found, wanted = alike(answer[name], expected[name])
            off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
            largest = max(largest, float(off.max()))
            print(f"{name}: {list(found.shape)}, at most {off.max():.6g} from the framework")
    agrees = largest <= certificate["allowed_difference"]
    print("agrees" if agrees else f"does not agree: {certificate['allowed_difference']:.6g} allowed")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
