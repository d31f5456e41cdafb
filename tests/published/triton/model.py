"""A model file in the published style: flags by argparse, a module and the names of its tensors."""

import argparse

import torch
from clouds import Perceptron, points
from triton.deployment_toolkit.core import GET_ARGPARSER_FN_NAME, GET_MODEL_FN_NAME, Precision


def update_argparser(parser: argparse.ArgumentParser) -> None:
    """The flags of get_model."""
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--precision", type=Precision, choices=list(Precision), default=Precision.FP32)
    parser.add_argument("--cpu", action="store_true")


def get_model(**model_args):
    """A perceptron that is trained on the spot, seeded."""
    assert model_args["precision"] is Precision.FP32 and model_args["cpu"] is True
    assert isinstance(model_args["hidden"], int) and isinstance(model_args["steps"], int)
    torch.manual_seed(0)
    model = Perceptron(model_args["hidden"])
    x, labels = points(256, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(model_args["steps"]):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
    return model.eval(), {"inputs": ["input__0"], "outputs": ["output__0"]}


assert (GET_MODEL_FN_NAME, GET_ARGPARSER_FN_NAME) == ("get_model", "update_argparser")
