"""The causes that pages and tables speak of, by number: who lent a page, who ended its load, who gave a row its pages.

A number is given once and never again, and of two the larger is the later one. What no page and no table names any more
is dropped from time to time, so that memory grows with the pools and not with the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from stress.check.event import Cause

NEVER = 0  # the number of no cause
_NOBODY = Cause(0, "", -1, "")
SPARE = 4096  # causes that may be there beside those that are named


class Causes:
    """`named()`: all numbers that are still spoken of, int[n] each, NEVER among them as it likes.

    known: by number, in the order of the numbers. following: the number that the next cause will have.
    """

    def __init__(self, named: Callable[[], Iterable[np.ndarray]], spare: int = SPARE) -> None:
        self._named = named
        self._spare = self._most = spare
        self._latest = _NOBODY
        self.known: dict[int, Cause] = {NEVER: _NOBODY}
        self.following = NEVER + 1

    def __getitem__(self, number: int) -> Cause:
        return self.known[number]

    def number(self, cause: Cause) -> int:
        """That of a cause; events in a row usually share one."""
        if cause is not self._latest and cause != self._latest:
            if len(self.known) > self._most:
                self._forget()
            self._latest = self.known[self.following] = cause
            self.following += 1
        return self.following - 1

    def first_of(self, operation: int) -> int:
        """The first number of the operation at hand; the following one where it has none yet."""
        first = self.following
        while (before := self.known.get(first - 1)) is not None and before.operation == operation:
            first -= 1
        return max(first, NEVER + 1)

    def _forget(self) -> None:
        """Drops what nothing names. The operation at hand keeps all of its own."""
        spoken_of = {NEVER}
        for numbers in self._named():
            spoken_of.update(np.unique(numbers).tolist())
        operation = self._latest.operation
        self.known = {
            number: cause
            for number, cause in self.known.items()
            if number in spoken_of or cause.operation == operation
        }
        self._most = 2 * len(self.known) + self._spare
