"""The project's own log lines on the terminal."""

from __future__ import annotations

import logging
import sys
import time

from servegrid.cli.table import say
from servegrid.host.proc import output

logger = logging.getLogger("servegrid")


class Progress(logging.Handler):
    """Prints each line with its time."""

    def emit(self, record: logging.LogRecord) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        say(f"{clock} {record.getMessage()}")


def show_progress() -> None:
    """From now on, the steps and what the models' own code prints."""
    logger.setLevel(logging.INFO)
    logger.addHandler(Progress())


def show_everything() -> None:
    """Each command with the environment that we give it, and all output of steps, servers and generators."""
    logger.setLevel(logging.DEBUG)
    # Plain lines: a server's verbose log has thousands a second.
    output.addHandler(logging.StreamHandler(sys.stdout))
    output.setLevel(logging.DEBUG)
    output.propagate = False


def shows_everything() -> bool:
    return logger.isEnabledFor(logging.DEBUG)
