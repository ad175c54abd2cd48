"""Asks a question in a process of its own, so that an import that fails, crashes or hangs is a line and no more."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec

TIMEOUT_S = 120.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`document` is what the child printed as its last line; None with the reason in `why`, one line."""

    document: Any = None
    why: str = ""


def ask(arguments: list[str], timeout_s: float = TIMEOUT_S) -> Answer:
    """The answer of `python ARGUMENTS`, whose last line is a JSON document."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return Answer(why=f"no answer within {timeout_s:g} s")
    except OSError as error:
        return Answer(why=f"can't be started: {error.strerror}")
    if done.returncode:
        return Answer(why=_how_it_ended(done.returncode, done.stderr.decode(errors="replace")))
    try:
        return Answer(document=msgspec.json.decode(done.stdout.strip().splitlines()[-1]))
    except (IndexError, msgspec.DecodeError):
        return Answer(why="its answer can't be read")


def _how_it_ended(code: int, errors: str) -> str:
    """The last line on stderr, which names a Python error; a signal leaves none."""
    last = errors.strip().splitlines()[-1:]
    ended = f"killed by signal {-code}" if code < 0 else f"exit {code}"
    return f"{last[0].strip()[:300]} ({ended})" if last else ended
