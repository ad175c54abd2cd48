"""What is known of copies that a schedule asked for: whose they are, who has not told the end, what does not come."""

from __future__ import annotations

from typing import NamedTuple

from stress.engine.vllm.offload import Copy


class Failed(NamedTuple):
    """Pages of a request's load that do not come. `by_request`: the request is told of and not the pages."""

    request: str
    pages: frozenset[int]
    by_request: bool


class Moving:
    """One event: its copies that are under way, the workers that have not told its end, and what of a load does not
    come. A store has a copy for what the schedule found, and for each request whose end has held pages for it."""

    __slots__ = ("copies", "event", "failed", "kind", "number", "requests", "waits_for")

    def __init__(self, copies: list[Copy], failed: list[Failed], workers: int) -> None:
        self.copies, self.failed, self.waits_for = copies, failed, set(range(workers))
        last = copies[-1]
        self.number, self.kind, self.event, self.requests = last.ticket, last.kind, last.event, last.requests


class Word(NamedTuple):
    """That a copy has ended, from one worker. `again`: the second time."""

    due_us: int
    number: int  # of its event
    worker: int
    again: bool
    of: Moving


def without(copy: Copy, gone: frozenset[int]) -> Copy:
    """What of a copy has come."""
    came = [pair for pair in zip(copy.pages, copy.host_pages, strict=True) if pair[0] not in gone]
    return copy._replace(pages=[page for page, _ in came], host_pages=[host for _, host in came])
