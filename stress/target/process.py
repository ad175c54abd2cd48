"""Asks one question of one tree in a process of its own, which is the only place a tree is imported in.

The module asked prints one JSON document; {"error": "..."} is something the user can mend.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from stress.target.name import TargetError, TargetUnavailable

TIMEOUT_S = 600


def ask_tree(module: str, root: Path, *args: str, answers: tuple[int, ...] = (0,)) -> Any:
    """`python -m module ROOT ARGS...`'s document. Raises TargetError or TargetUnavailable: one line.

    `answers`: the exit codes that come with a document.
    """
    command = [sys.executable, "-W", "ignore", "-m", module, str(root), *args]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise TargetUnavailable(
            f"{root}: did not answer within {TIMEOUT_S} s; run {' '.join(command)}"
        ) from error
    if done.returncode not in answers:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise TargetUnavailable(f"{root}: its process ended with {done.returncode}: {last[0]}")
    # A tree may print while it is imported; the document is the last line.
    document = msgspec.json.decode(done.stdout.splitlines()[-1])
    if isinstance(document, dict) and "error" in document:
        raise TargetError(document["error"])
    return document
