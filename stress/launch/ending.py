"""How this process ends after a library that can no longer be shut down.

A Ray driver whose cluster has lost its head hangs in the interpreter's shutdown, and crashes there, long after the
verdict is written; whoever waits for the command would get the crash for its exit code.
"""

from __future__ import annotations

import os
import sys

_broken: list[str] = []  # libraries that this process must not shut down


def never_shut_down(library: str) -> None:
    """From now on this process ends without the interpreter's shutdown."""
    _broken.append(library)


def leave(code: int) -> int:
    """Ends the process with `code` where the interpreter can't; else returns it."""
    if _broken:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
