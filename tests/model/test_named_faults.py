"""Named faults of `paged` and `ring`: found at the faulty operation; a clean twin gets there and is clean."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import Cell, run_cell

# Base -> its faults here, and how many requests reach them all (None: as configured).
BASES = {
    "paged": (("F01", "F04", "F05", "F06", "F07", "F08", "F13", "F14", "F21", "F23"), None),
    "ring": (("F02", "F03", "F24"), 60),
}
SEED = 3


def run(base: str, fault: str, on_finding: str) -> Cell:
    config, requests = base_config(base, "idle", fault), BASES[base][1]
    check = msgspec.structs.replace(config.check, on_finding=on_finding)
    workload = msgspec.structs.replace(config.workload, requests=requests or config.workload.requests)
    return run_cell(msgspec.structs.replace(config, check=check, workload=workload, seed=SEED), ARM)


@cache
def twin(base: str) -> Cell:
    return run(base, f"dry:{'+'.join(BASES[base][0])}", "count")


@pytest.mark.parametrize(("base", "fault"), [(base, fault) for base in BASES for fault in BASES[base][0]])
def test_it_is_found_at_the_faulty_operation(base: str, fault: str) -> None:
    cell = run(base, fault, "stop")
    acted = cell.reached[fault][0]
    found = [one for one in cell.fired if one.detector in FAULTS[fault].rules]
    assert any(acted in (one.operation, one.noticed) for one in found), cell.fired
    assert acted == twin(base).reached[fault][0], "the same run up to there"


@pytest.mark.parametrize("base", BASES)
def test_the_clean_twin_is_clean_and_reaches_every_trigger(base: str) -> None:
    clean = twin(base)
    assert (clean.findings, clean.failed, clean.statuses) == (0, False, ["finished"])
    assert set(clean.reached) == set(BASES[base][0])


def test_production_sees_of_a_ring_the_credit_alone() -> None:
    """A pool that lends nothing overflows at once; an entry that stays, and a window that is not there, are silent."""
    faults = BASES["ring"][0]
    detectors = {fault: {one.detector for one in run("ring", fault, "count").fired} for fault in faults}
    assert "assert" in detectors["F02"]
    assert not {"assert", "error", "drain"} & (detectors["F03"] | detectors["F24"])
