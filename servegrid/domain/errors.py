"""Everything servegrid raises on purpose.

    ServegridError
    ├── UserError           the input is wrong: one line, exit code 2
    ├── UnsupportedError    a cell cannot exist here: verdict `unsupported`, with the rule
    ├── InfeasibleError     the served model is out of memory: verdict `infeasible`
    └── StepError           a step of a cell failed: verdict `error`, with log and repeat command
        └── WrongAnswerError    a served answer is wrong: verdict `failed_accuracy`

A message says what is wrong, where, and what to write or do instead.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

SHOWN = 20
"""The most names that an error lists."""
NOT_READY = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG, errno.ENOTDIR),
)
"""Errors of the system that the host or a path causes, not a defect of servegrid."""


class ServegridError(Exception):
    """Base of every error below."""


class UserError(ServegridError):
    """The user's input is wrong; nothing was started."""


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


class WrongAnswerError(StepError):
    """A served answer is not the reference's; the message names deployment, size, time and request."""


def printable(text: str) -> str:
    """The text for a terminal: unprintable characters, as those of escape sequences, are spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def refusal(error: BaseException) -> str | None:
    """The error of the system in one line; None if it is no error of the host or a path."""
    if not isinstance(error, OSError) or error.errno not in NOT_READY:
        return None
    return f"{error.filename or 'the system'}: {error.strerror}"


def nearest(name: str, choices: Iterable[str]) -> str:
    """`did you mean ...?` with the most similar names; empty if there are none."""
    near = difflib.get_close_matches(name, list(choices), n=3, cutoff=0.4)
    return f"did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def unknown(kind: str, name: str, known: Iterable[str], *, in_order: bool = False) -> UserError:
    """The error for an unknown name, with the nearest known ones. `in_order`: list the known names in their
    own order instead of sorted."""
    choices = list(dict.fromkeys(known)) if in_order else sorted(set(known))
    hint = nearest(name, choices)
    more = f" and {len(choices) - SHOWN} more" if len(choices) > SHOWN else ""
    listed = (", ".join(choices[:SHOWN]) or "none") + more
    return UserError(f"unknown {kind} {name!r}: {hint + ' ' if hint else ''}known: {listed}")
