"""Rank the candidate ads of one page view: look the columns up, send one request, print the ads in order."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
from columns import HOTNESS, MULTI_HOT, NUMERIC, ONE_HOT, OUTPUT, PADDING
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

SAMPLE = Path(__file__).parent / "data" / "request.json"


def to_inputs(request: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Every column of the network for a request {"user": columns, "ads": [columns, ...]}, one row an ad.

    The user's columns hold for every ad. Shapes and types are those of the data loader. Raises
    ValueError when there is no ad, a column is missing, or a list has too many ids.
    """
    rows = [request["user"] | ad for ad in request["ads"]]
    if not rows:
        raise ValueError("ads: expected at least one candidate")
    for number, row in enumerate(rows):
        if missing := [c for c in (*NUMERIC, *ONE_HOT, *MULTI_HOT) if c not in row]:
            raise ValueError(f"ad {number}: no column {', '.join(missing)}, neither there nor with the user")
        if long := [c for c in MULTI_HOT if len(row[c]) > HOTNESS]:
            raise ValueError(f"ad {number}: more than {HOTNESS} ids in {', '.join(long)}")
    x = {c: np.array([[row[c]] for row in rows], dtype=np.float32) for c in NUMERIC}
    x |= {c: np.array([[row[c]] for row in rows], dtype=np.int32) for c in ONE_HOT}
    for column in MULTI_HOT:
        padded = [row[column] + [PADDING] * (HOTNESS - len(row[column])) for row in rows]
        x[column] = np.array(padded, dtype=np.int32)
    return x


def to_ranking(request: dict[str, Any], probabilities: NDArray[Any]) -> list[tuple[int, float]]:
    """(ad id, click probability) from the likeliest ad on; probabilities: [ads, 1] in the request's order."""
    values = probabilities[:, 0].astype(float)
    return [(int(request["ads"][i]["ad_id"]), float(values[i])) for i in np.argsort(-values, kind="stable")]


def rank(url: str, model: str, request: dict[str, Any]) -> list[tuple[int, float]]:
    """Send all ads as one batch; numbers go in the type that the server's model takes, FP32 or FP16.

    Raises tritonclient.utils.InferenceServerException when the server refuses the request.
    """
    x = to_inputs(request)
    with grpc.InferenceServerClient(url) as client:
        inputs = []
        for entry in client.get_model_metadata(model).inputs:
            array = x[entry.name].astype(triton_to_np_dtype(entry.datatype))
            tensor = grpc.InferInput(entry.name, list(array.shape), entry.datatype)
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        result = client.infer(model, inputs, outputs=[grpc.InferRequestedOutput(OUTPUT)])
    return to_ranking(request, result.as_numpy(OUTPUT))


def main() -> None:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001", help="host:port of the gRPC end point")
    parser.add_argument("--model", required=True, help="name of the served model")
    parser.add_argument(
        "--request",
        type=Path,
        default=SAMPLE,
        help='JSON file {"user": columns, "ads": [columns, ...]}; a page view of the tiny variant by default',
    )
    arguments = parser.parse_args()
    request = json.loads(arguments.request.read_text(encoding="utf-8"))
    for place, (ad, probability) in enumerate(rank(arguments.url, arguments.model, request), start=1):
        print(f"{place}. ad {ad}: {probability:.1%} likely to be clicked")


if __name__ == "__main__":
    main()
