"""Named faults: how they are written, when they act, and that an arm with one is what it says."""

from __future__ import annotations

import pytest

from allocator.faults.log import NO_FAULTS, FaultLog, with_faults
from stress.fault_name import parse_faults


class Correct:
    def answer(self) -> int:
        return 1


class Wrong:
    faults: FaultLog

    def answer(self) -> int:
        return 2 if self.faults.acts("F01") else super().answer()


def test_a_fault_acts_and_its_first_operation_is_kept() -> None:
    log = FaultLog(acting=["F01"])
    faulty = with_faults(Correct, {"F01": Wrong}, log)()
    log.operation = 7
    assert faulty.answer() == 2
    log.operation = 9
    assert (faulty.answer(), log.reached) == (2, {"F01": 7})


def test_a_dry_fault_is_reached_and_does_not_act() -> None:
    log = FaultLog(dry=["F01"])
    log.operation = 3
    assert (with_faults(Correct, {"F01": Wrong}, log)().answer(), log.reached) == (1, {"F01": 3})


def test_what_has_no_fault_is_the_correct_class_itself() -> None:
    assert with_faults(Correct, {"F01": Wrong}, FaultLog(acting=["F06"])) is Correct
    assert with_faults(Correct, {"F01": Wrong}, NO_FAULTS) is Correct


def test_names_ranks_and_twins() -> None:
    named = parse_faults("f06+F01@0,2")
    assert [named.of_rank(rank) for rank in (0, 1)] == [("F06", "F01"), ("F06",)]
    assert parse_faults("dry:F06") == parse_faults("F06")._replace(dry=True)
    assert parse_faults(None).chosen == ()


@pytest.mark.parametrize("text", ["", "F06+", "F06@", "F06@a", "F06+F06@1", "dry:", "F99"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fault"):
        parse_faults(text)
