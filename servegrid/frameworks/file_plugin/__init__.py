"""The Python files of a model folder that is made of a model file; they import nothing of the project."""

from pathlib import Path

PROTOBUF_LIMIT = 2**31 - 1

TEMPLATE = Path(__file__).parent

COPIED = tuple(f"{__name__}.{module}" for module in ("prepare", "dataloader"))
"""The modules that are copied into such a folder."""
