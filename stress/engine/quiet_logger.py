"""A logger for the modules of a tree, which else would write to the run's stderr and set up the process's logging."""

from __future__ import annotations

import logging


class QuietLogger(logging.Logger):
    """Outside the process's hierarchy of loggers, and enabled for no level. `name`: what its tree calls it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, logging.CRITICAL + 1)
        self.propagate = False
