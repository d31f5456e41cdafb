"""Ask a served BERT one question: tokenise, send one request, print the answer."""

import argparse

import numpy as np
import tritonclient.grpc as grpc
from spans import best_spans
from squad import Example, load_tokenizer
from windows import make_features


def ask(url: str, model: str, vocab_file: str, max_seq_length: int, question: str, context: str) -> str:
    """Answer text cut from the context; all windows of a long context go as one batch, [windows, seq].

    Raises tritonclient.utils.InferenceServerException when the server refuses the request.
    """
    example = Example(id="question", question=question, context=context, answers=())
    features = make_features([example], load_tokenizer(vocab_file), max_seq_length)
    arrays = (features.token_ids, features.segment_ids, features.attention_mask)
    inputs = []
    for index, array in enumerate(arrays):
        tensor = grpc.InferInput(f"input__{index}", list(array.shape), "INT32")
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    outputs = [grpc.InferRequestedOutput(name) for name in ("output__0", "output__1")]
    with grpc.InferenceServerClient(url) as client:
        result = client.infer(model, inputs, outputs=outputs)
    start, end = result.as_numpy("output__0"), result.as_numpy("output__1")
    scores, firsts, lasts = best_spans(start, end, features.char_begin >= 0)
    best = int(np.argmax(scores))
    if not np.isfinite(scores[best]):
        return ""
    return context[features.char_begin[best, firsts[best]] : features.char_end[best, lasts[best]]]


def main() -> None:
    """Command line of the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001", help="host:port of the gRPC end point")
    parser.add_argument("--model", required=True, help="name of the served model")
    parser.add_argument("--vocab-file", required=True, help="vocab.txt of the model")
    parser.add_argument("--max-seq-length", type=int, required=True, help="tokens a window")
    parser.add_argument("--question", required=True)
    parser.add_argument("--context", required=True, help="text that holds the answer")
    arguments = vars(parser.parse_args())
    print(ask(**arguments))


if __name__ == "__main__":
    main()
