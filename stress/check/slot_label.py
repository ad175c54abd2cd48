"""Who wrote a slot last, as one integer beside the slot's content stamp: the request and its position.

A stamp says whether a slot holds what its reader takes it for; a label says in words what it holds instead. A page that
is lent anew loses its stamps and keeps its labels: what its last borrower left is never what the next one expects, not
even the same token, and whose it was can be told.
"""

from __future__ import annotations

POSITION_BITS = 24
NOTHING = -1  # label of a slot that was never written


def label_of(rid: int, position: int) -> int:
    """The label of position `position` of request `rid` (>= 0)."""
    return rid << POSITION_BITS | position


def position_of(label: int) -> int:
    """The position that a label names."""
    return label & ((1 << POSITION_BITS) - 1)


def request_of(label: int) -> int:
    """The request that a label names."""
    return label >> POSITION_BITS


def describe(label: int) -> str:
    """`position 64 of request 4`, or `nothing`."""
    if label == NOTHING:
        return "nothing"
    return f"position {position_of(label)} of request {request_of(label)}"
