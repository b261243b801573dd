"""Logging for maintainers: what the program decided and did, step by step.

Modules log with ``logging.getLogger(__name__)``, at INFO what happens a few times in a run, at
DEBUG what happens for every batch. Nothing is shown unless ``--verbose`` or the environment
variable RESUMERGE_LOG asks for it. What users must know is never logged but printed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from resumerge.errors import refuse

VARIABLE = "RESUMERGE_LOG"
"""The environment variable: ``debug`` or ``info`` logs to stderr; ``debug:FILE`` appends to a file.
"""

_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class _StderrHandler(logging.StreamHandler[TextIO]):
    """A handler that logs to stderr as it is now.

    A progress bar replaces stderr, and draws itself below the lines.
    """

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """Ignore a stream: the handler always takes `sys.stderr`."""


def log_verbosely(times: int) -> None:
    """Log to stderr: INFO for ``-v``, DEBUG for ``-vv``; nothing for 0 times."""
    if times:
        _add(_StderrHandler(), logging.INFO if times == 1 else logging.DEBUG)


def log_as_environment_says(environment: Mapping[str, str] = os.environ) -> None:
    """Log as RESUMERGE_LOG says, if it is set.

    Raises:
        InputError: the variable names no level, or a file that cannot be written.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return
    name, _, file = text.partition(":")
    level = logging.getLevelNamesMapping().get(name.upper())
    if not level:
        raise refuse(
            f"{VARIABLE} does not name a log level",
            expected="debug, info, warning or error; debug:FILE writes to a file",
            found=repr(text),
        )
    try:
        _add(logging.FileHandler(file) if file else _StderrHandler(), level)
    except OSError as error:
        raise refuse(f"{VARIABLE} names a file that cannot be written", found=error) from None


def _add(handler: logging.Handler, level: int) -> None:
    logger = logging.getLogger("resumerge")
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.setLevel(level)
    logger.addHandler(handler)
    logger.setLevel(min(level, logger.level or level))
