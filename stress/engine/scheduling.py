"""What an engine has instead of the contract's verbs for slots where its own scheduler decides.

Such an engine is handed requests and told what the forward pass did; whom it admits, gives slots, or preempts is its
own affair. Of `stress.engine.contract` it has open, close, abort, poll, drain, and everything that may be read. Its
`abort` takes a request in any state: waiting, for a load too, running, or preempted. A step is schedule, commit,
update, in this order; between commit and update requests may be aborted, as clients leave while a pass runs. That
transfers have ended it is told in an update, which may then come without rows; `pending_us` says when.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """One request's part of a step: `tokens` positions from `start` on, the last `drafts` of them speculative.

    `samples`: the pass reaches the end of what is known, and yields 1 to 1 + drafts tokens.
    """

    rid: int
    start: int
    tokens: int
    drafts: int
    samples: bool


class Step(NamedTuple):
    """What the next forward pass computes, in the engine's order, and whom that has cost all its slots."""

    rows: tuple[Row, ...]
    preempted: tuple[int, ...]

    def answer(self) -> tuple[int, ...]:
        """As `stress.operation.Operation` keeps it."""
        words = [len(self.preempted), *self.preempted]
        for row in self.rows:
            words += (row.rid, row.start, row.tokens)
        return tuple(words)


class SchedulingEngine(Protocol):
    """`schedules` is True; an engine that is asked for slots has no such attribute."""

    schedules: bool

    def submit(self, rid: int, priority: int) -> None:
        """A request that is open joins the engine's queue. `priority`: lower goes first, where the policy looks."""

    def schedule(self) -> Step:
        """The next step; one without rows where nothing can run."""

    def commit(self, rows: list[tuple[int, int]]) -> None:
        """(rid, accepted): the pass has run, and so many positions from the row's start hold tokens that stay."""

    def update(self, rows: list[tuple[int, int]]) -> tuple[int, ...]:
        """(rid, sampled) for the rows of the step that samples or does not (0); returns those that have ended: at their
        length, or because the engine gives up what it could not load.

        Requests that were aborted since are left out.
        """

    def transfer_of(self, rid: int) -> str:
        """load: the request waits for a load of its pages; store: pages of it are being stored; "": neither."""

    def failures_told(self) -> int:
        """How many loads its workers have said to have failed."""

    def never_told_us(self) -> int | None:
        """When the first of those transfers was due whose end is never told; None: there is none."""

    def take_let_go(self) -> list[int]:
        """Requests that were aborted, kept their pages for a transfer, and have given them back since the last call."""


def schedules(engine: object) -> bool:
    """Whether the engine's own scheduler decides."""
    return getattr(engine, "schedules", False)


def scheduled_in(answer: tuple[int, ...]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Of a schedule's answer: requests that were preempted, and (rid, start, tokens) of the rows."""
    count = answer[0]
    words = answer[1 + count :]
    return list(answer[1 : 1 + count]), list(zip(*(iter(words),) * 3, strict=True))
