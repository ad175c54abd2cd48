"""Named faults of the linker's side: found at the faulty operation; a clean twin gets there and is clean."""

from __future__ import annotations

import msgspec
import pytest

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import Cell, run_cell

SEEDS = {"F15": 3, "F17": 2}  # where each is reached early


def run(fault: str, name: str, on_finding: str = "stop") -> Cell:
    config = base_config(FAULTS[fault].config, "idle", name)
    check = msgspec.structs.replace(config.check, on_finding=on_finding)
    workload = msgspec.structs.replace(config.workload, requests=40)
    return run_cell(msgspec.structs.replace(config, check=check, workload=workload, seed=SEEDS[fault]), ARM)


@pytest.mark.parametrize("fault", SEEDS)
def test_it_is_found_at_the_faulty_operation_and_its_twin_is_clean(fault: str) -> None:
    cell, twin = run(fault, fault), run(fault, f"dry:{fault}", "count")
    acted = cell.reached[fault][0]
    found = [one for one in cell.fired if one.detector in FAULTS[fault].rules]
    assert any(acted in (one.operation, one.noticed) for one in found), cell.fired
    assert (twin.findings, twin.failed, twin.statuses) == (0, False, ["finished"])
    assert twin.reached[fault][0] == acted, "the same run up to there"
