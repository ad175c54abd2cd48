"""TreeError, and how a process that imports one tree for another tells what it found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec


class TreeError(ValueError):
    """A tree that can't be imported here: one line with the cure."""


def tell(report: Callable[[], Any]) -> int:
    """Prints what `report` returns as one JSON document, or {"error": "..."} for a TreeError. The exit code."""
    try:
        document = report()
    except TreeError as error:
        document = {"error": str(error)}
    sys.stdout.buffer.write(msgspec.json.encode(document))
    return 0
