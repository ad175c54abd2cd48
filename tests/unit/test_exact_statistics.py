"""Bounds of a share and Fisher's exact test, against values from tables and from the definitions."""

from fractions import Fraction
from math import comb

import pytest

from stress.exact_statistics import fisher_p, share_bounds

# Clopper-Pearson, 95 %, four digits; 0 of n and n of n are 1 - 0.025 ** (1 / n).
BOUNDS = {
    (0, 1): (0.0, 0.9750),
    (0, 10): (0.0, 0.3085),
    (1, 10): (0.0025, 0.4450),
    (3, 10): (0.0667, 0.6525),
    (5, 10): (0.1871, 0.8129),
    (7, 10): (0.3475, 0.9333),
    (10, 10): (0.6915, 1.0),
    (1, 20): (0.0013, 0.2487),
    (5, 20): (0.0866, 0.4910),
    (10, 100): (0.0490, 0.1762),
    (50, 100): (0.3983, 0.6017),
    (500, 1000): (0.4685, 0.5315),
    (0, 0): (0.0, 1.0),
}


@pytest.mark.parametrize(("count", "bounds"), BOUNDS.items())
def test_bounds_are_those_of_the_tables(count, bounds):
    assert share_bounds(*count) == pytest.approx(bounds, abs=0.00006)


@pytest.mark.parametrize("trials", [1, 2, 7, 30])
def test_bounds_mirror_and_hold_exactly_what_they_promise(trials):
    """At a bound the tail is at most 2.5 %; a millionth further in it is more."""
    for count in range(trials + 1):
        low, high = share_bounds(count, trials)
        other = share_bounds(trials - count, trials)
        assert (low, high) == pytest.approx((1 - other[1], 1 - other[0]))
        assert low <= count / trials <= high
        if count:
            at = round(low * 1_000_000)
            assert tail(at, count, trials) <= Fraction(1, 40) < tail(at + 1, count, trials)


def tail(share, count, trials):
    p = Fraction(share, 1_000_000)
    return sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count, trials + 1))


FISHER = {
    (3, 4, 1, 4): Fraction(34, 70),  # the lady who tastes tea, two-sided: 0.4857
    (4, 4, 0, 4): Fraction(2, 70),
    (1, 10, 11, 14): 0.00276,  # R: fisher.test(matrix(c(1, 9, 11, 3), 2)): p = 0.002759
    (7, 10, 0, 10): 0.00310,
    (10, 10, 0, 10): Fraction(2, comb(20, 10)),
    (5, 10, 5, 10): 1,
    (0, 10, 0, 10): 1,
    (0, 0, 3, 5): 1,
}


@pytest.mark.parametrize(("counts", "p"), FISHER.items())
def test_fisher_is_that_of_the_tables(counts, p):
    count, trials, other, others = counts
    assert float(fisher_p(*counts)) == pytest.approx(float(p), rel=0.002)
    assert fisher_p(other, others, count, trials) == fisher_p(*counts)


@pytest.mark.parametrize("counts", [(-1, 3), (4, 3)])
def test_a_count_beyond_its_trials_is_refused(counts):
    with pytest.raises(ValueError, match="is no share"):
        share_bounds(*counts)
    with pytest.raises(ValueError, match="are no counts"):
        fisher_p(*counts, 1, 2)
