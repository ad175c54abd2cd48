"""An attention-TP group whose members' transfers fail: they decide alike, and each fault of a rank is found.

The base is `tp`: two groups of two ranks in lock step, with failures on one member of each.
"""

from __future__ import annotations

import msgspec
import pytest

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import Cell, run_cell
from stress.matrix.row import make_row

MINE = ("F16", "F18", "F19", "F20")
GROUP_RULES = {"I17", "I18", "I19"}


def run(fault: str | None, **layout) -> Cell:
    config = base_config("tp", "idle", fault)
    replace = msgspec.structs.replace
    workload = replace(config.workload, requests=40)
    return run_cell(replace(config, workload=workload, layout=replace(config.layout, **layout)), ARM)


@pytest.fixture(scope="module")
def twin() -> Cell:
    return run(f"dry:{'+'.join(MINE)}")


def decided(cell: Cell, rank: int) -> list:
    return cell.operations[rank]


def test_members_decide_alike_although_their_transfers_fail_apart(twin: Cell) -> None:
    assert (twin.findings, twin.failed) == (0, False)
    assert twin.marks["load_failed"] and twin.marks["offload_failed"] and twin.marks["load_back"]
    assert decided(twin, 0) == decided(twin, 1)
    assert decided(twin, 2) == decided(twin, 3)
    assert len(decided(twin, 0)) != len(decided(twin, 2)), "the groups have requests of their own"


@pytest.mark.parametrize("fault", MINE)
def test_a_fault_of_a_rank_is_found_when_it_acts(fault: str, twin: Cell) -> None:
    cell = run(fault)
    assert make_row(fault, "idle", cell, twin)["holds"], (cell.fired, cell.reached)
    assert cell.statuses == ["finished"] * 4, "a collective that is left out hangs nobody"
    assert set(FAULTS[fault].rules) <= GROUP_RULES


def test_a_short_load_on_rank_3_alone_parts_its_group_and_no_other(twin: Cell) -> None:
    cell = run("F16@3")
    fired = {(one.detector, one.rank) for one in cell.fired}
    assert {("I17", 3), ("I18", 2), ("I18", 3)} <= fired
    assert not {one.rank for one in cell.fired} & {0, 1}
    assert decided(cell, 0) == decided(cell, 1)
