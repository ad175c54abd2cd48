"""Progress on stderr: a bar on a terminal, a line every ten seconds elsewhere. Stdout stays untouched."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 10.0
RANKS_NAMED_MAX = 8


class LineProgress:
    """A line every ten seconds of wall time for each arm, unless it would be the arm's last one."""

    def __init__(self, requests: int, stream: TextIO | None = None) -> None:
        self._requests = requests
        self._stream = stream or sys.stderr  # None: the program was started without one
        self._told: dict[str, tuple[float, str]] = {}  # by arm: when, and what

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._stream is not None:
            self._stream.flush()

    def __call__(self, state: Any) -> None:
        """`state` is the coordinator's ArmProgress."""
        now = time.monotonic()
        told_at, told = self._told.setdefault(state.arm, (now, ""))
        if now - told_at < LINE_EVERY_S:
            return
        line = f"{state.arm}: {describe(state, self._requests)}"
        if line != told:
            self._told[state.arm] = now, line
            if self._stream is not None:
                print(line, file=self._stream, flush=True)


class BarProgress:
    """A live bar for each arm."""

    def __init__(self, requests: int, console: Console) -> None:
        self._requests = requests
        self._tasks: dict[str, Any] = {}
        self._bars = Progress(
            TextColumn("{task.fields[arm]}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> BarProgress:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def __call__(self, state: Any) -> None:
        told = describe(state, self._requests)
        if state.arm not in self._tasks:
            self._tasks[state.arm] = self._bars.add_task("", total=self._requests, arm=state.arm, state=told)
        self._bars.update(self._tasks[state.arm], completed=state.requests_done, state=told)


def make_progress(requests: int) -> LineProgress | BarProgress:
    """The progress that fits stderr. `requests` is the number that an arm is to bring to their end."""
    console = Console(stderr=True)
    return BarProgress(requests, console) if console.is_terminal else LineProgress(requests)


def describe(state: Any, requests: int) -> str:
    """One arm's state in one line."""
    if not state.requests_done and not state.virtual_s_max:
        told = f"{state.ranks} ranks are starting"
    else:
        told = (
            f"{state.requests_done}/{requests} requests, "
            f"virtual {state.virtual_s_min:.0f}-{state.virtual_s_max:.0f} s, "
            f"{state.ranks_ended} ranks ended, {state.asserts} asserts, {state.findings} findings"
        )
    if state.lost:
        told += f", {_name_ranks(state.lost)} lost"
    if state.silent_rank is not None:
        told += f", rank {state.silent_rank} silent for {state.silent_s:.0f} s"
    return told


def _name_ranks(numbers: tuple[int, ...]) -> str:
    """`rank 3`, `ranks 3, 5`; of many the first ones."""
    named = ", ".join(map(str, numbers[:RANKS_NAMED_MAX]))
    more = f" and {len(numbers) - RANKS_NAMED_MAX} more" if len(numbers) > RANKS_NAMED_MAX else ""
    return f"rank{'s' * (len(numbers) > 1)} {named}{more}"
