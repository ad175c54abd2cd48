"""Whether this process's ranks were asked to end, and where they do so: between two operations, or amid one.

Between two nothing is half done, and what a rank has seen and not checked yet is shown to the checks. A target that
hangs comes to no such place: it is ended where it is, after LAST_WORDS_S, and what its operation had told is dropped,
for half of an operation breaks rules that the whole would not. Whoever asks need not rely on either: what hangs in
native code hears nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

LAST_WORDS_S = 2.0  # for a rank to come to its next operation


class AskedToEnd(KeyboardInterrupt):
    """Ends a rank's work, ahead of an operation or amid one."""


class Ending:
    """`asked`: ranks raise AskedToEnd at their next operation. `heard`: one is at work that will. `done` is called when
    it has. `amid`: an operation is under way, and no check of it: an exception may end it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nobody asks."""
        self.asked = self.heard = self.amid = False
        self.done: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def hears(self) -> Iterator[None]:
        """A rank is at work inside. Raises AskedToEnd behind it where it was asked, and has come to no operation."""
        self.heard = True
        try:
            yield
        finally:
            self.heard = False
            if self.asked:
                self.done()
        if self.asked:
            raise AskedToEnd


ENDING = Ending()  # of this process
