"""The device path: it waits for nothing, is judged later under the same operation, and finds the same."""

import pytest
import torch
from probe_bench import EDGES, PAGE, POOLS, extend, hybrid, trace
from torch.utils._python_dispatch import TorchDispatchMode

from stress.check.event import Cause
from stress.check.shadow import Ledger
from stress.probe import Watch
from stress.probe.capture import DeviceReader


class NoWaiting(TorchDispatchMode):
    """Refuses what waits for a device: reads of values, and shapes that depend on them."""

    WAITS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "is_nonzero", "equal", "bincount")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::")
        if name.startswith(self.WAITS) or (name.startswith("index.") and self._masked(args)):
            raise AssertionError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))

    def _masked(self, args):
        return any(index is not None and index.dtype == torch.bool for index in args[1])


def deferred_run(mode):
    """The silent case of the bug, with the events held back until the end of each step."""
    allocator = hybrid()
    ledger = Ledger(POOLS, EDGES, 1)
    on = Watch(allocator, POOLS, EDGES, ledger, DeviceReader())
    with mode:
        on.begin(Cause(1, "extend", 1, ""), 10)
        extend(allocator, [(0, 6 * PAGE + 1)], [-1])
        on.begin(Cause(2, "admit", 4, ""), 20)
        loaded = allocator.full_attn_allocator.alloc(4 * PAGE)
        on.begin(Cause(3, "checkpoint", 4, ""), 30)
        allocator.free_group_begin()
        allocator.free_swa_segment(loaded, start_pos=0)
        on.begin(Cause(4, "results_end", -1, ""), 40)
        allocator.free_group_end()
    assert not any(pool.lends for pool in ledger.shadow.pools.values())
    on.land()
    ledger.settle(4, 40)
    return ledger


def test_the_device_path_waits_for_nothing_and_finds_the_same():
    ledger = deferred_run(NoWaiting())
    assert ledger.crashed == "" and ledger.findings == {"I1": 4}
    finding = ledger.first
    assert (finding.operation, finding.noticed, finding.page) == (3, 4, 0)
    assert finding.history[0] == "2 lent full page 8 to request 4 (admit)"


def test_both_paths_tell_the_ledger_the_same():
    """Copies that land later, and ids that are looked at on the host, make no difference to what is known."""
    ledgers = []
    for reader in (None, DeviceReader()):
        ledger = Ledger(POOLS, EDGES, 1)
        allocator = hybrid("filter-per-group")
        on = Watch(allocator, POOLS, EDGES, ledger, reader)
        on.begin(Cause(1, "extend", 1, ""), 10)
        trace(allocator)
        on.begin(Cause(2, "checkpoint", 1, ""), 20)
        cached, own = allocator.full_attn_allocator.alloc(3 * PAGE), allocator.alloc(3 * PAGE)
        peers = allocator.translate_loc_from_full_to_swa(own)
        # The first page is named from its second slot on: it keeps its peer where the first slot does.
        allocator.clear_full_to_swa_mapping(own[PAGE:])
        allocator.set_full_to_swa_mapping(cached[PAGE:], peers[PAGE:])
        allocator.clear_full_to_swa_mapping(own[1:PAGE])
        on.land()
        ledger.settle(2, 20)
        ledgers.append(ledger)
    host, device = ledgers
    assert host.findings == device.findings == {} and host.crashed == device.crashed == ""
    for name in ("full", "swa"):
        assert (host.shadow.pools[name].on_loan == device.shadow.pools[name].on_loan).all()
    assert (host.shadow.edges[0].peer == device.shadow.edges[0].peer).all()
    assert host.shadow.edges[0].mapped > 3


def test_a_rule_that_the_device_path_feeds_nothing_is_not_watched():
    for reader, watched in ((None, True), (DeviceReader(), False)):
        ledger = Ledger(POOLS, EDGES, 2)
        Watch(hybrid(), POOLS, EDGES, ledger, reader)
        assert ("I8" in ledger.rules_watched) is watched
        assert "I4" in ledger.rules_watched


def test_the_refusal_of_waiting_is_a_control():
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        hybrid().free_swa(torch.arange(PAGE, 2 * PAGE))
