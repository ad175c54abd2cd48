"""Who wrote a slot last, as one integer beside the slot's content stamp: the request and its position.

A stamp says whether a slot holds what its reader takes it for; a label says in words what it holds instead. A page that
is lent anew has its stamps moved by LOAN, so what its last borrower left is never what the next one expects, not even
the same token, and the difference tells how many loans ago it was written.
"""

from __future__ import annotations

POSITION_BITS = 24
NOTHING = -1  # label of a slot that was never written
LOAN = 0x2545F4914F6CDD1D  # odd: it has an inverse among the 64-bit integers
_WORD = 1 << 64
_INVERSE = pow(LOAN, -1, _WORD)
_LOANS_MAX = 1 << 32


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


def loans_since(difference: int) -> int | None:
    """Loans that went by since a stamp was written that differs from the expected one by `difference`.

    None: it is another token's; 0: there is no difference.
    """
    loans = difference * _INVERSE % _WORD
    return loans if loans < _LOANS_MAX else None
