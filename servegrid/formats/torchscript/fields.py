"""What the conversion to `ts-trace` and `ts-script` reads."""

from __future__ import annotations

from servegrid.formats.fields import ConvertFields
from servegrid.store.job import Job


class TorchScriptFields(ConvertFields):
    """Whether the module is scripted, not traced: set for bf16 only, where the conversions differ."""

    scripted: bool = False


TorchScriptJob = Job[TorchScriptFields]
