"""Pages in host memory and their way in and out of a pool's buffers, on a CPU and, where there is one, on a GPU."""

import time

import pytest
import torch

from linker.device_pages import DevicePages, host_block, rows_a_page
from linker.faults import transfer_fault
from linker.host_pages import HostPages, Run
from linker.layer_loads import LayerGate, LoadBatch, PoolLoad, reduced_loads
from linker.plugin_options import plugin_options, rank_of_process

PAGE = 4
SLOTS = 10 * PAGE
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]


def slots(*pages, device="cpu"):
    return torch.cat([torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages]).to(device)


def pool(device, dtype=torch.bfloat16):
    """Two layers of K and V with a row a slot; layer 1 has one more buffer with a row a page."""
    made = torch.Generator().manual_seed(3)
    layers = {
        layer: [torch.randn(SLOTS, 2, 8, generator=made).to(dtype).to(device) for _ in range(2)]
        for layer in range(2)
    }
    return layers, DevicePages("kv", "kv", layers, page_slots=PAGE, rows_a_page=PAGE)


def stream_of(device):
    return None if device == "cpu" else torch.cuda.Stream()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8])
def test_pages_come_back_into_other_slots_as_they_were(device, dtype):
    layers, pages = pool(device, dtype)
    before = [[buffer.clone() for buffer in group] for group in layers.values()]
    block = host_block([(pages, pages.rows(slots(3, 1, 7, device=device)))], pinned=device != "cpu")
    store = HostPages(8)
    store.put([("kv", ["a", "b", "c"], block)])
    for group in layers.values():
        for buffer in group:
            buffer.zero_()
    if device != "cpu":
        torch.cuda.synchronize()
    runs = store.runs("kv", ["b", "c", "a"])
    load = PoolLoad(pages, pages.rows(slots(5, 2, 9, device=device)), runs)
    batch = LoadBatch([load], 2, time.monotonic(), True, stream_of(device))
    gate = LayerGate({0: batch}.get, 2)
    gate.set_consumer(0)
    for layer, group in layers.items():
        gate.wait_until(layer)
        for buffer, old in zip(group, before[layer], strict=True):
            for source, target in ((1, 5), (7, 2), (3, 9)):
                assert torch.equal(buffer[slots(target)], old[slots(source)])
            assert not buffer[slots(0, 1, 3, 4, 6, 7, 8)].any(), "no other page is written"
    assert batch.finish()


def test_a_delayed_batch_is_copied_by_who_needs_it_first():
    layers, pages = pool("cpu")
    block = host_block([(pages, pages.rows(slots(1)))], pinned=False)
    load = PoolLoad(pages, pages.rows(slots(2)), [Run(block, 0, 0, 1)])
    layers[0][0].zero_()
    batch = LoadBatch([load], 2, time.monotonic() + 0.02, True, None)
    assert not layers[0][0].any()
    batch.wait_layer(0)
    assert layers[0][0][slots(2)].any()


def test_a_gate_without_a_batch_lets_pass():
    gate = LayerGate({}.get, 2)
    gate.wait_until(1)
    gate.set_consumer(5)
    gate.wait_until(0)
    assert gate.consumer_index == 5


def test_pages_of_one_block_in_order_are_one_run():
    store, first, second = HostPages(8), {}, {}
    store.put([("kv", ["a", "b", "c"], first)])
    store.put([("kv", ["d", "e"], second)])
    runs = store.runs("kv", ["b", "c", "d", "a"])
    assert [(run.position, run.start, run.stop) for run in runs] == [(1, 0, 2), (0, 2, 3), (0, 3, 4)]
    assert [run.block is first for run in runs] == [True, False, True]
    assert store.runs("kv", ["a", "x"]) is None
    assert store.runs("swa", ["a"]) is None


def test_a_window_makes_the_restorable_lengths_sparse():
    store = HostPages(16)
    hashes = list("abcdef")
    store.put([("kv", hashes, None), ("swa", ["b", "c", "f"], None)])
    assert store.restorable("kv", hashes, {}) == [1, 2, 3, 4, 5, 6]
    assert store.restorable("kv", hashes, {"swa": 2}) == [3]
    assert store.restorable("kv", hashes, {"swa": 1}) == [2, 3, 6]
    assert store.restorable("kv", ["x", *hashes], {}) == []


def test_the_least_recently_used_goes_and_a_tail_before_its_head():
    store = HostPages(4)
    store.put([("kv", ["a", "b"], None), ("swa", ["b"], None)])
    store.put([("kv", ["p", "q"], None)])
    store.restorable("kv", ["a", "b"], {})
    store.put([("kv", ["z"], None)])
    assert store.holds("kv", ["a", "b", "p", "z"]) and not store.holds("kv", ["q"])
    store.put([("kv", list("stuvw"), None), ("swa", ["v", "w"], None)])
    assert len(store) == 4
    assert store.restorable("kv", list("stuvw"), {}) == [1, 2], "the window's pages were used last"


def test_a_fault_leaves_of_a_load_what_its_kind_says():
    _, pages = pool("cpu")
    runs = [Run(None, 0, 0, 2), Run(None, 5, 2, 5)]
    load = PoolLoad(pages, pages.rows(slots(1, 2, 3, 4, 5)), runs)
    assert reduced_loads([load], None) == [load]
    assert reduced_loads([load], transfer_fault("late", delay_ms=1)) == [load]
    for kind in ("failed", "cancelled", "lost"):
        assert reduced_loads([load], transfer_fault(kind)) == []
    (short,) = reduced_loads([load], transfer_fault("short"))
    assert [(run.start, run.stop) for run in short.runs] == [(0, 2)]


def test_rows_are_told_by_a_buffers_length():
    assert rows_a_page("kv", torch.zeros(SLOTS, 2), SLOTS, PAGE) == PAGE
    assert rows_a_page("kv", torch.zeros(SLOTS // PAGE, 2), SLOTS, PAGE) == 1
    with pytest.raises(ValueError, match="7 rows for 40 slots in pages of 4 has neither"):
        rows_a_page("kv", torch.zeros(7, 2), SLOTS, PAGE)
    with pytest.raises(ValueError, match="is not laid out in rows"):
        DevicePages("kv", "kv", {0: [torch.zeros(8, SLOTS).T]}, page_slots=PAGE, rows_a_page=PAGE)


def test_the_rank_comes_from_the_variable_that_is_named(monkeypatch):
    monkeypatch.setenv("KVSTRESS_TEST_RANK", "3")
    assert rank_of_process("KVSTRESS_TEST_RANK", 0) == 3
    assert rank_of_process(None, 5) == 5
    monkeypatch.setenv("KVSTRESS_TEST_RANK", "x")
    with pytest.raises(ValueError, match="KVSTRESS_TEST_RANK is 'x', no rank"):
        rank_of_process("KVSTRESS_TEST_RANK", 0)


def test_options_are_read_and_wrong_ones_refused_by_their_place():
    fault = {"kind": "failed-load", "ranks": [3], "after": 10, "count": 1}
    options = plugin_options({"store_pages": 100, "delay_ms": 2.5, "faults": [fault]})
    assert (options.store_pages, options.pools, options.delay_us) == (100, None, 2500)
    assert options.transfer_faults()[0].ranks == (3,)
    for wrong, says in (
        ({"store_pages": 0}, r"store_pages: 0 keeps nothing"),
        ({"store_pages": 1, "delay_ms": -1}, r"delay_ms: -1 is no delay"),
        ({"store_pages": 1, "faults": [{"kind": "broken"}]}, r"faults\[0\]\.kind: 'broken' is no transfer"),
        ({"store_pages": 1, "faults": [{"kind": "late"}]}, r"faults\[0\]\.delay_ms: 0 delays nothing"),
        ({"store_pages": "1"}, r"Expected `int`, got `str`"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            plugin_options(wrong)
        assert "\n" not in str(error.value)
