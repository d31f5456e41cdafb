"""`tf-savedmodel`: a TensorFlow SavedModel, run by Triton's tensorflow backend (up to 25.02) or hosted.

`tf-trt`: a SavedModel in which TensorRT engines replace the parts that TensorRT can run; not hosted.
TensorFlow 2.17 is the last with TensorRT ("this is the last release supporting TensorRT", release notes of
TensorFlow 2.17.0), and the project's own is newer, so `tf-trt` is converted in an environment that the
profile names. Nobody has run that conversion with this project yet.
"""

from __future__ import annotations

from servegrid.domain.releases import Releases
from servegrid.formats.base import (
    HostedSession,
    NativeBackend,
    OtherEnvironment,
    ServingFormat,
    engine_fields,
)

FILE = "model.savedmodel"


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """Later images have no tensorflow backend."""
    if release > known.last_tensorflow:
        return f"Triton {release} has no tensorflow backend; {known.last_tensorflow} is the last"
    return None


TF_SAVEDMODEL = ServingFormat(
    export="tf-savedmodel",
    precisions=("fp32",),
    libraries=("tensorflow",),
    file=FILE,
    native=NativeBackend(
        name="tensorflow",
        platform="tensorflow_savedmodel",
        # `amp` makes an fp32 graph fp16 where that is safe.
        accelerators={"trt": ("fp32", "fp16"), "amp": ("fp32",)},
        why_not_in_release=why_not_in_release,
    ),
    hosted=HostedSession(folder="savedmodel"),
)

TF_TRT = ServingFormat(
    export="tf-savedmodel",
    precisions=("fp32", "fp16"),
    environment=OtherEnvironment(
        needs="TensorFlow up to 2.17 built with TensorRT", libraries=("tensorflow",)
    ),
    engines=True,
    build_fields=engine_fields,
    file=FILE,
    # No accelerator acts on it; the published tables call it accelerated by `trt`, so a model may list that
    # label.
    native=NativeBackend(
        name="tensorflow", platform="tensorflow_savedmodel", why_not_in_release=why_not_in_release
    ),
)
