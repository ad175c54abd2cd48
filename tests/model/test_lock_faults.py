"""The faults of locks and of the window's edge, on small runs of their base: seen at the faulty operation, and not seen
by the same run that comes to the same trigger and does the right thing."""

import msgspec
import pytest

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, POOL_STATES, base_config
from stress.matrix.cell import run_cell
from stress.matrix.row import make_row


def cell(fault: str, pool_state: str, name: str):
    config = base_config(FAULTS[fault].config, pool_state, name)
    workload = msgspec.structs.replace(config.workload, requests=30)
    check = msgspec.structs.replace(config.check, on_finding="stop")
    return run_cell(msgspec.structs.replace(config, workload=workload, check=check), ARM)


@pytest.mark.parametrize("pool_state", POOL_STATES)
@pytest.mark.parametrize("fault", ["F09", "F10", "F11", "F12"])
def test_the_fault_is_seen_where_it_acts_and_its_twin_is_clean(fault, pool_state):
    row = make_row(fault, pool_state, cell(fault, pool_state, fault), cell(fault, pool_state, f"dry:{fault}"))
    assert row["clean_twin"] == {"findings": 0, "failed": False, "trigger_reached": True}
    assert row["holds"], row
