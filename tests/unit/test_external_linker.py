"""SGLang's side of the direct linker: what becomes of a queued load whose request leaves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from linker.direct import DirectLinker  # noqa: E402
from linker.store import MemoryStore  # noqa: E402
from stress.engine.sglang.external_linker import external_linker, store_keys  # noqa: E402

PAGE = 16
HASHES = ["1" * 64, "2" * 64]


def make(*, cancels: bool):
    store = MemoryStore()
    store.warm(store_keys(HASHES))
    direct = DirectLinker(store, skips_swa=True, delay_us=5)
    return external_linker(object, direct, {}, PAGE, 1, cancels=cancels)


def transfer() -> list:
    slots = torch.arange(PAGE, PAGE + PAGE * len(HASHES))
    return [SimpleNamespace(name=SimpleNamespace(value="kv"), keys=HASHES, device_indices=slots)]


def test_a_load_that_is_in_the_tree_already_goes_on_without_its_request():
    linker = make(cancels=False)
    linker.load("7", transfer())
    assert not linker.left_behind() and linker.next_due_us() is None
    assert not linker.cancel_queued_load("7")
    assert linker.left_behind() and linker.next_due_us() == 0
    assert linker.lookup("7", transfer()) == [] and linker.lookup("8", transfer()) == [1, 2]
    linker.start_layer_wise_loading()
    assert not linker.left_behind() and linker.next_due_us() == 5
    linker.now = lambda: 5
    assert linker.num_completed_loads() == 1 and linker.pop_completed_load() == ["7"]
    assert linker.lookup("7", transfer()) == [1, 2]
    assert linker.in_flight() == (0, 0)


def test_a_private_load_is_cancelled_before_it_begins_and_moves_nothing():
    linker = make(cancels=True)
    linker.load("7", transfer())
    linker.load("8", transfer())
    assert linker.cancel_queued_load("7") and not linker.cancel_queued_load("7")
    assert not linker.left_behind()
    linker.start_layer_wise_loading()
    linker.now = lambda: 5
    assert linker.num_completed_loads() == 1 and linker.pop_completed_load() == ["8"]


def test_a_load_that_has_begun_is_nobodys_to_cancel():
    for cancels in (False, True):
        linker = make(cancels=cancels)
        linker.load("7", transfer())
        linker.start_layer_wise_loading()
        assert not linker.cancel_queued_load("7") and not linker.left_behind()
