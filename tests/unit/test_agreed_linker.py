"""What the members of a group agree on: the lengths that all can restore, and transfers that have ended for all."""

from __future__ import annotations

import numpy as np
import pytest

from linker.agreed_linker import NOT_ENDED, AgreedLinker
from linker.direct import DirectLinker
from linker.faults import transfer_fault
from linker.faulty_linker import FaultyLinker
from linker.store import MemoryStore

KEYS = np.arange(1, 13)
WINDOW = 2


def store_of(ends: list[int]) -> MemoryStore:
    """Twelve pages, and window parts so that a prefix may end at `ends` alone (windows of two pages)."""
    store = MemoryStore()
    for end in ends:
        store.add(KEYS[end - WINDOW : end], np.ones(WINDOW, dtype=bool))
    store.add(KEYS[: max(ends)])
    return store


class Group:
    """Two members in lock step; `faults` of the second one's transfers."""

    def __init__(self, stores, *faults) -> None:
        self.now_us = 0
        first = DirectLinker(stores[0], skips_swa=False, delay_us=5)
        second = FaultyLinker(stores[1], faults=faults, rank=0, skips_swa=False, delay_us=5)
        self.members = [AgreedLinker(own, 2, lambda: self.now_us) for own in (first, second)]

    def look_up(self, keys=KEYS) -> None:
        told = [member.told_of(keys) for member in self.members]
        for member in self.members:
            for place, masks in enumerate(told):
                member.hear_lookup(place, keys, *masks)

    def exchange(self) -> list[list[int]]:
        for member in self.members:
            member.collect(self.now_us)
        told = [member.verdicts() for member in self.members]
        for member in self.members:
            member.agree(told, self.now_us)
        return told


def ends_of(view) -> list[int]:
    held = view.lookup(KEYS)
    window = view.swa_stored(KEYS)
    return [end for end in range(WINDOW, held + 1) if window[end - WINDOW : end].all()]


@pytest.mark.parametrize(
    ("ends", "agreed"), [(([4, 8], [4, 12]), [4]), (([4], [8]), []), (([4, 8], [4, 8]), [4, 8])]
)
def test_only_ends_that_every_member_can_restore_are_agreed(ends, agreed) -> None:
    group = Group([store_of(of_one) for of_one in ends])
    assert all(member.lookup(KEYS) == 0 for member in group.members), "nothing is told yet"
    group.look_up()
    assert [ends_of(member) for member in group.members] == [agreed, agreed]
    assert [ends_of(view) for view in group.members[0].views] == list(ends)


def test_a_load_is_valid_as_far_as_it_is_for_all_and_ends_at_an_exchange() -> None:
    group = Group([store_of([8]), store_of([8])], transfer_fault("short-load"))
    for member in group.members:
        assert member.load(1, KEYS[:8], np.arange(8), 0) == (1, 5)
    group.now_us = 3
    assert group.exchange() == [[NOT_ENDED], [NOT_ENDED]]
    assert [member.next_due_us() for member in group.members] == [5, 5]
    group.now_us = 9
    assert [member.next_due_us() for member in group.members] == [10, 10], "not before the next exchange"
    assert group.exchange() == [[8], [4]]
    for member in group.members:
        (ended,) = member.poll(9)
        assert (ended.ticket, ended.pages, ended.ok) == (1, 4, True)
        assert (member.poll(9), member.next_due_us(), member.in_flight()) == ([], None, (0, 0))


def test_an_offload_that_fails_on_one_member_has_failed_for_all() -> None:
    group = Group([MemoryStore(), MemoryStore()], transfer_fault("cancelled-offload", count=1))
    for member in group.members:
        assert member.offload(1, KEYS[:4], np.arange(4), 0, swa=np.ones(4, dtype=bool)) == 1
    assert group.exchange() == [[NOT_ENDED], [0]], "withdrawn at once on the second"
    assert [member.has_something_to_tell() for member in group.members] == [True, False]
    assert [member.under_way() for member in group.members] == [1, 1], "so the second takes part all the same"
    group.now_us = 7
    assert group.exchange() == [[1], [0]]
    assert [member.poll(7)[0].ok for member in group.members] == [False, False]
    # Sent again it is stored on the first already; the tickets stay the same.
    assert [member.offload(1, KEYS[:4], np.arange(4), 8) for member in group.members] == [2, 2]
    group.now_us = 20
    assert group.exchange() == [[1], [1]]
    group.look_up(KEYS[:4])
    assert [member.lookup(KEYS) for member in group.members] == [4, 4]


def test_a_cancelled_transfer_is_out_of_the_verdicts_of_all() -> None:
    group = Group([store_of([8]), store_of([8])])
    for member in group.members:
        member.load(1, KEYS[:8], np.arange(8), 0)
        member.load(2, KEYS[:4], np.arange(4), 0)
        assert member.cancel(1) and not member.cancel(1)
    group.now_us = 5
    assert group.exchange() == [[4], [4]]
    for member in group.members:
        assert member.cancel(2), "agreed, and not polled yet"
        assert member.poll(5) == []


def test_alone_a_rank_trusts_its_own_store() -> None:
    group = Group([store_of([4, 8]), store_of([4])])
    group.look_up()
    group.members[0].go_alone()
    assert ends_of(group.members[0]) == [4, 8]
