"""Numbers of causes stay what they were, and what nothing speaks of is dropped."""

from __future__ import annotations

import numpy as np
import pytest

from stress.check.causes import NEVER, Causes
from stress.check.event import Cause


def cause(operation: int, step: str = "") -> Cause:
    return Cause(operation, "extend", operation, step)


def causes_of(named: list[int], spare: int) -> Causes:
    return Causes(lambda: [np.array(named, dtype=np.int32)], spare)


def test_a_number_grows_with_each_other_cause():
    causes = causes_of([], 100)
    assert [causes.number(cause(n)) for n in (5, 5, 6, 5)] == [1, 1, 2, 3]
    assert causes.following == 4
    assert (causes[1], causes[2], causes[3]) == (cause(5), cause(6), cause(5))
    assert causes[NEVER].operation == 0


def test_what_is_named_is_kept_under_its_number_and_the_rest_is_dropped():
    named = [2, 7]
    causes = causes_of(named, 8)
    assert [causes.number(cause(n)) for n in range(101, 121)] == list(range(1, 21))
    assert (causes[2], causes[7], causes[20]) == (cause(102), cause(107), cause(120))
    with pytest.raises(KeyError):
        causes[3]
    assert causes.following == 21


def test_memory_grows_with_what_is_named_and_not_with_the_run():
    named: list[int] = []
    causes = causes_of(named, 16)
    most = 0
    for operation in range(1, 20_000):
        number = causes.number(cause(operation))
        named[:] = [*named[-9:], number]
        most = max(most, len(causes.known))
    assert number == 19_999
    assert most <= 2 * (10 + 2) + 16 + 1
    assert [causes[one].operation for one in named] == named


@pytest.mark.parametrize("spare", [0, 3, 1000])
def test_the_first_of_an_operation_is_found_also_after_older_ones_were_dropped(spare):
    causes = causes_of([], spare)
    for operation in range(1, 40):
        assert causes.first_of(operation) == causes.following
        first = causes.number(cause(operation, "one"))
        causes.number(cause(operation, "two"))
        last = causes.number(cause(operation, "three"))
        assert last == first + 2
        assert causes.first_of(operation) == first
        assert [causes[n].step for n in range(first, last + 1)] == ["one", "two", "three"]
