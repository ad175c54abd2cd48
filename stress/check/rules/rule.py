"""What a rule is: it looks at each event of its kinds before the shadow takes it in, and reports violations.

`check(event, shadow, report)` sees an event; `close(pool, event, shadow, report)` the end of a free or of a group
(`event` is the GROUP_END, or None); `end(None, shadow, report)` the end of an operation. A rule reads the shadow and
never writes its state. The clean path is a few numpy operations; messages are made only when they are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stress.check.event import Cause, Event, EventKind
from stress.check.pool_shadow import PoolShadow
from stress.check.state import Shadow


class Violation(NamedTuple):
    """`count` pages (or entries) are wrong, `page` is the first. `cause`: the faulty operation, None: this one.

    `source`: (pool, page) whose history tells more than the page's own, e.g. the page whose entry was read.
    """

    rule: str
    pool: str
    page: int
    count: int
    message: Callable[[], str]
    cause: Cause | None = None
    at_us: int | None = None
    source: tuple[str, int] | None = None


Report = Callable[[Violation], None]


class Rule:
    """Base of the rules. `needs`: observations without which it can't be watched; `level`: from which it runs."""

    id = ""
    title = ""
    also: frozenset[str] = frozenset()  # other rules in whose name it reports
    needs: frozenset[str] = frozenset()
    level = 1
    kinds: frozenset[EventKind] = frozenset()
    closes = False
    ends = False
    # Its clean path is one of those that proof.py proves: events so proved are not shown to it.
    proved = False
    # Of a rule with an end: it has nothing to do there where all events that move pages were proved.
    end_is_proved = False
    # Of a rule that is not: events that it need not see even so.
    proved_kinds: frozenset[EventKind] = frozenset()
    takes_lists = False  # `check` can do with pages that are a list, and saves the array

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        """One event of `kinds`, before it is applied."""

    def takes_counts(self, told: dict[str, tuple[int, ...]], cause: Cause, shadow: Shadow) -> bool:
        """Of a rule that sees COUNTS: does what `check` would do with those of these pools, where it is plain that it
        reports nothing. False, and nothing is done: it has to see the events. One rule alone may do that."""
        return False

    def close(self, pool: PoolShadow, event: Event | None, shadow: Shadow, report: Report) -> None:
        """A call outside a group, or a group, is over; `pool.intents` and `pool.returned` are those of it."""

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        """An operation is over in which pages moved, or something had to be judged that may leave work for its end."""


def such_pages(count: int) -> str:
    """What a message that names the first of `count` wrong pages ends with."""
    return f" ({count} such pages)" if count > 1 else ""


def asker(pool: PoolShadow, page: int, event: Event) -> tuple[Cause, int]:
    """Cause and time of the last pending free that asked for the page, else those of the event itself."""
    for intent in reversed(pool.intents):
        if (intent.pages == page).any():
            return intent.cause, intent.at_us
    return event.cause, event.at_us
