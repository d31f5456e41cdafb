"""Everything servegrid raises on purpose.

    ServegridError
    ├── UserError           the input is wrong: one line, exit code 2
    ├── UnsupportedError    a cell cannot exist here: verdict `unsupported`, with the rule
    ├── InfeasibleError     memory ended in the served model: verdict `infeasible`
    └── StepError           a step of a cell failed: verdict `error`, with log and repeat command

A message says what is wrong, where, and what to write or do instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ServegridError(Exception):
    """Base of every error below."""


class UserError(ServegridError):
    """What the user wrote cannot be used; nothing was started."""


class UnsupportedError(ServegridError):
    """This cell cannot be built or served here; the message is the rule that says so."""


class InfeasibleError(ServegridError):
    """The served model ran out of memory; `largest_batch` is the largest batch that fits, 0 if none does."""

    def __init__(self, message: str, *, largest_batch: int) -> None:
        super().__init__(message)
        self.largest_batch = largest_batch


class StepError(ServegridError):
    """A step failed; `log` is the file with its output, `command` repeats just that step, `code` is
    the exit code of its process, where it had one."""

    def __init__(self, message: str, *, log: str = "", command: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.command = command
        self.code = code


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is in no list, with the nearest names that are."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return UserError(
        f"unknown {kind} {name!r}: {hint + ' ' if hint else ''}known: {', '.join(choices) or 'none'}"
    )
