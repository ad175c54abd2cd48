"""Named faults of the allocator and the engine: found at the faulty operation; a clean twin gets there and is clean."""

from __future__ import annotations

import msgspec
import pytest

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import Cell, run_cell

MINE = ("F01", "F04", "F05", "F06", "F07", "F08", "F13", "F14", "F21", "F23")
SEED = 3


def run(fault: str, on_finding: str) -> Cell:
    config = base_config("paged", "idle", fault)
    check = msgspec.structs.replace(config.check, on_finding=on_finding)
    return run_cell(msgspec.structs.replace(config, check=check, seed=SEED), ARM)


@pytest.fixture(scope="module")
def twin() -> Cell:
    return run(f"dry:{'+'.join(MINE)}", "count")


@pytest.mark.parametrize("fault", MINE)
def test_it_is_found_at_the_faulty_operation(fault: str, twin: Cell) -> None:
    cell = run(fault, "stop")
    acted = cell.reached[fault][0]
    found = [one for one in cell.fired if one.detector in FAULTS[fault].rules]
    assert any(acted in (one.operation, one.noticed) for one in found), cell.fired
    assert acted == twin.reached[fault][0], "the same run up to there"


def test_the_clean_twin_is_clean_and_reaches_every_trigger(twin: Cell) -> None:
    assert (twin.findings, twin.failed, twin.statuses) == (0, False, ["finished"])
    assert set(twin.reached) == set(MINE)
