"""Exact statistics of counts, in integers: no rounding decides a bound, and small counts need no approximation.

Bounds of a share are Clopper and Pearson's (1934): each tail is held to half of what the interval may miss, so it
covers at least what it says for every true share. Two counts are compared by Fisher's exact test, two-sided by the
sum of all tables that are at most as likely (R's fisher.test does the same).
"""

from __future__ import annotations

from fractions import Fraction
from math import comb

_PARTS = 1_000_000  # bounds are whole millionths, rounded outwards
_TAIL_PARTS = 40  # 1/40 in each tail: 95 %


def share_bounds(count: int, trials: int) -> tuple[float, float]:
    """The 95 % bounds of the share that `count` of `trials` estimates, as shares from 0 to 1.

    Raises ValueError unless 0 <= count <= trials. No trials say nothing: (0, 1).
    """
    if not 0 <= count <= trials:
        raise ValueError(f"{count} of {trials} is no share")
    low = _low(count, trials) if count else 0
    high = _PARTS - _low(trials - count, trials) if count < trials else _PARTS
    return low / _PARTS, high / _PARTS


def _low(count: int, trials: int) -> int:
    """The largest share in millionths at which `count` or more of `trials` comes in at most one tail's part."""
    least, most = 0, _PARTS  # at `least` it holds, at `most` it does not
    while most - least > 1:
        share = (least + most) // 2
        if _tail(share, count, trials) * _TAIL_PARTS <= _PARTS**trials:
            least = share
        else:
            most = share
    return least


def _tail(share: int, count: int, trials: int) -> int:
    """How likely `count` or more of `trials` come in, as a part of _PARTS**trials. `share` is in millionths.

    The sum of comb(trials, k) * share**k * other**(trials - k) by Horner's rule: with powers taken term by term, the
    bounds of a thousand trials would take seconds.
    """
    other = _PARTS - share
    ways, power, choices = 0, 1, 1  # choices: comb(trials, k)
    for k in range(trials, count - 1, -1):
        ways = ways * share + choices * power
        power *= other
        choices = choices * k // (trials - k + 1)
    return ways * share**count


def fisher_p(count: int, trials: int, other_count: int, other_trials: int) -> Fraction:
    """How likely counts at least as unlikely as these are, if both have one share. 1 where nothing could differ.

    Raises ValueError unless each count is one of its trials.
    """
    if not (0 <= count <= trials and 0 <= other_count <= other_trials):
        raise ValueError(f"{count} of {trials} and {other_count} of {other_trials} are no counts")
    total = count + other_count
    ways = [
        comb(trials, k) * comb(other_trials, total - k)
        for k in range(max(0, total - other_trials), min(trials, total) + 1)
    ]
    seen = comb(trials, count) * comb(other_trials, other_count)
    return Fraction(sum(way for way in ways if way <= seen), sum(ways))
