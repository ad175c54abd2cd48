"""The faults of a per-request ring: found at the faulty operation; a clean twin comes to each trigger and is clean."""

from __future__ import annotations

import msgspec
import pytest

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import Cell, run_cell

MINE = ("F02", "F03", "F24")
SEED = 3


def run(fault: str, on_finding: str) -> Cell:
    config = base_config("ring", "idle", fault)
    check = msgspec.structs.replace(config.check, on_finding=on_finding)
    workload = msgspec.structs.replace(config.workload, requests=60)
    return run_cell(msgspec.structs.replace(config, check=check, workload=workload, seed=SEED), ARM)


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


def test_production_sees_the_credit_alone(twin: Cell) -> None:
    """A pool that lends nothing overflows at once; an entry that stays, and a window that is not there, are silent."""
    detectors = {fault: {one.detector for one in run(fault, "count").fired} for fault in MINE}
    assert "assert" in detectors["F02"]
    assert not {"assert", "error", "drain"} & (detectors["F03"] | detectors["F24"])
