"""`gpu_profiles/*.yaml` as values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from servegrid.domain.names import Name, Positive, Text, Unique
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Format, Generator, Precision, Value


def worker_command(pool: str) -> str:
    """The command that starts a worker of a work pool, for one run at a time: two on a card would disturb
    each other's measurements."""
    return f"prefect worker start --pool {pool} --limit 1"


class ProfileRule(Value):
    """A format that this device cannot run, in one precision or in any, and why."""

    format: Format
    precision: Precision | None = None
    reason: str


class Peak(Value):
    """The data sheet's peak rates: memory in GB/s, dense arithmetic in 10^12 operations/s by type of the
    operands (`tf32`: fp32 operands on tensor cores). A figure that the source lacks is left out."""

    source: str
    memory_gb_s: Positive
    tflops: dict[Precision | Literal["tf32"], Positive] = Field(min_length=1)


class Image(Value):
    """A container image whose Python converts to a format. Its entrypoint, if it has one, must run its
    arguments as a command, as NVIDIA's images do."""

    image: Text

    def __str__(self) -> str:
        return self.image


def _kind(given: object) -> str:
    return "image" if isinstance(given, dict | Image) else "folder"


Environment = Annotated[Annotated[Path, Tag("folder")] | Annotated[Image, Tag("image")], Discriminator(_kind)]
"""Another Python environment: a folder with bin/python, or an image."""


class GpuProfile(Value):
    """`gpu_profiles/<name>.yaml`: how to recognise a device, and what it can do.

    device_names: any of these is matched as whole words against the driver's name of the card, so `L4` is
    not an L40S. memory_gb: the nominal size. pool: the Prefect work pool whose workers have such a device.
    environments: the Python environment that converts to a format instead of this project's own. server,
    generator: the default server and load generator.
    """

    name: Name
    description: str
    device_kind: Literal["cpu", "gpu"]
    device_names: tuple[Text, ...]
    compute_capability: str | None = Field(None, pattern=r"^\d+\.\d$")
    memory_gb: Positive | None = None
    pool: Name
    precisions: Annotated[tuple[Precision, ...], Unique]
    peak: Peak | None = None
    unsupported: tuple[ProfileRule, ...] = ()
    server: ServerChoice | None = None
    generator: Generator | None = None
    environments: dict[Format, Environment] = Field({})

    @field_validator("environments")
    @classmethod
    def _absolute(cls, given: dict[Format, Environment]) -> dict[Format, Environment]:
        for name, place in given.items():
            if isinstance(place, Path) and not place.is_absolute():
                raise ValueError(
                    f"{name}: the whole path of a Python environment, or {{image: NAME}}, not {place}"
                )
        return given
