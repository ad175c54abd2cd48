"""Each transfer fault does what its name says, to the transfers it names, and every transfer ends once."""

import subprocess
import sys

import numpy as np
import pytest

from linker.faults import KINDS, FaultSchedule, transfer_fault
from linker.faulty_linker import FaultyLinker
from linker.store import MemoryStore

DELAY_US = 100
KEYS = np.arange(1, 5, dtype=np.int64)
PAGES = np.arange(11, 15, dtype=np.int64)


def linker_with(*faults, rank=0, stored=KEYS, **options):
    store = MemoryStore()
    store.warm(stored)
    return FaultyLinker(store, faults=faults, rank=rank, delay_us=DELAY_US, **{"skips_swa": True, **options})


def offloading(*faults, **options):
    return linker_with(*faults, stored=np.zeros(0, dtype=np.int64), **options)


def outcome(ended):
    return [(done.ticket, done.pages, done.ok, done.due_us) for done in ended]


def test_without_a_fault_it_is_the_direct_linker():
    linker = linker_with()
    ticket, due_us = linker.load(7, KEYS, PAGES, 0)
    assert due_us == DELAY_US
    assert outcome(linker.poll(DELAY_US)) == [(ticket, 4, True, DELAY_US)]


def test_late_ends_well_but_later():
    linker = linker_with(transfer_fault("late", delay_ms=1))
    ticket, due_us = linker.load(7, KEYS, PAGES, 0)
    assert due_us == linker.next_due_us() == 1000 + DELAY_US
    assert linker.poll(due_us - 1) == []
    assert list(linker.pages_of(ticket)) == list(PAGES)
    assert outcome(linker.poll(due_us)) == [(ticket, 4, True, due_us)]


def test_late_offload_is_stored_when_it_ends():
    linker = offloading(transfer_fault("late", delay_ms=1))
    linker.offload(7, KEYS, PAGES, 0)
    linker.poll(1000)
    assert linker.lookup(KEYS) == 0
    linker.poll(1000 + DELAY_US)
    assert linker.lookup(KEYS) == 4


def test_short_load_says_how_many_pages_arrived():
    linker = linker_with(transfer_fault("short"))
    ticket, due_us = linker.load(7, KEYS[:3], PAGES[:3], 0)
    assert outcome(linker.poll(due_us)) == [(ticket, 1, True, due_us)]


def test_short_load_of_one_page_is_a_failure():
    linker = linker_with(transfer_fault("short"))
    ticket, due_us = linker.load(7, KEYS[:1], PAGES[:1], 0)
    assert outcome(linker.poll(due_us)) == [(ticket, 0, False, due_us)]


def test_short_offload_stores_half_and_the_rest_can_be_sent_again():
    linker = offloading(transfer_fault("short", count=1))
    ticket = linker.offload(7, KEYS, PAGES, 0)
    assert list(linker.pages_of(ticket)) == [11, 12]
    second = linker.offload(7, KEYS, PAGES, 0)
    assert list(linker.pages_of(second)) == [13, 14]
    assert outcome(linker.poll(DELAY_US)) == [(ticket, 2, True, DELAY_US), (second, 2, True, DELAY_US)]
    assert linker.lookup(KEYS) == 4


def test_short_offload_with_swa_stores_half_with_its_swa_part():
    linker = offloading(transfer_fault("short"), skips_swa=False)
    linker.offload(7, KEYS, PAGES, 0, swa=np.array([False, True, True, True]))
    linker.poll(DELAY_US)
    assert linker.lookup(KEYS) == 2
    assert list(linker.swa_stored(KEYS)) == [False, True, False, False]


def test_failed_load_ends_at_its_time_with_nothing():
    linker = linker_with(transfer_fault("failed"))
    ticket, due_us = linker.load(7, KEYS, PAGES, 0)
    assert linker.poll(due_us - 1) == []
    assert outcome(linker.poll(due_us)) == [(ticket, 0, False, due_us)]


def test_failed_offload_stores_nothing_and_may_be_sent_again():
    linker = offloading(transfer_fault("failed", count=1))
    ticket = linker.offload(7, KEYS, PAGES, 0)
    assert linker.offload(7, KEYS, PAGES, 0) is None, "they are on their way"
    assert outcome(linker.poll(DELAY_US)) == [(ticket, 0, False, DELAY_US)]
    assert linker.lookup(KEYS) == 0
    assert linker.offload(7, KEYS, PAGES, DELAY_US) is not None


def test_lost_never_ends_until_its_caller_gives_up():
    linker = linker_with(transfer_fault("lost"))
    ticket, _ = linker.load(7, KEYS, PAGES, 0)
    assert linker.next_due_us() is None
    assert linker.poll(1 << 60) == []
    assert linker.in_flight() == (1, 0)
    assert list(linker.pages_of(ticket)) == list(PAGES)
    assert linker.cancel(ticket) and not linker.cancel(ticket)
    assert linker.in_flight() == (0, 0)


def test_lost_with_a_timeout_fails():
    linker = offloading(transfer_fault("lost", delay_ms=1))
    ticket = linker.offload(7, KEYS, PAGES, 0)
    assert linker.next_due_us() == 1000 + DELAY_US
    assert outcome(linker.poll(5000)) == [(ticket, 0, False, 1000 + DELAY_US)]
    assert linker.lookup(KEYS) == 0


def test_cancelled_is_told_at_the_next_poll():
    linker = linker_with(transfer_fault("cancelled", count=1))
    ticket, _ = linker.load(7, KEYS, PAGES, 5)
    assert linker.next_due_us() == 5
    assert outcome(linker.poll(5)) == [(ticket, 0, False, 5)]
    assert not linker.cancel(ticket)


@pytest.mark.parametrize("kind", KINDS)
def test_every_transfer_ends_once(kind):
    delay = {"late": 1.0, "lost": 2.0}.get(kind, 0.0)
    linker = linker_with(transfer_fault(kind, after=1, count=3, delay_ms=delay))
    tickets = []
    for number in range(6):
        tickets.append(linker.load(number, KEYS, PAGES, number * 10)[0])
        new = KEYS + 100 * (number + 1)
        tickets.append(linker.offload(number, new, PAGES, number * 10))
    assert linker.cancel(tickets[1]), "one that a fault has hit"
    ended = [done.ticket for now_us in range(0, 4000, 50) for done in linker.poll(now_us)]
    assert sorted([*ended, tickets[1]]) == tickets
    assert linker.in_flight() == (0, 0) and linker.next_due_us() is None
    assert linker.schedule.injected[kind] == 3
    assert not any(linker.cancel(ticket) for ticket in tickets)


def test_a_transfer_due_at_once_is_due():
    linker = linker_with()
    linker.delay_us = 0
    linker.load(7, KEYS, PAGES, 0)
    assert linker.next_due_us() == 0


def test_completions_come_in_order_of_their_time():
    linker = linker_with(transfer_fault("failed", after=1, count=1))
    first, _ = linker.load(1, KEYS, PAGES, 0)
    failing, _ = linker.load(2, KEYS, PAGES, 5)
    third, _ = linker.load(3, KEYS, PAGES, 9)
    assert [done.ticket for done in linker.poll(1000)] == [first, failing, third]


def test_only_its_ranks_are_hit():
    for rank, ok in ((3, False), (0, True)):
        linker = linker_with(transfer_fault("failed", ranks=[3]), rank=rank)
        linker.load(7, KEYS, PAGES, 0)
        assert [done.ok for done in linker.poll(DELAY_US)] == [ok]


def drawn(schedule, directions):
    return [(hit := schedule.draw(direction)) and hit.kind for direction in directions]


def test_transfers_are_counted_by_direction():
    turns = ["load", "offload", "load", "offload", "load", "load"]
    loads = FaultSchedule([transfer_fault("failed-load", after=1, count=2)], 0)
    assert drawn(loads, turns) == [None, None, "failed", None, "failed", None]
    either = FaultSchedule([transfer_fault("failed", after=1, count=2)], 0)
    assert drawn(either, turns) == [None, "failed", "failed", None, None, None]


def test_the_first_of_two_faults_has_a_transfer_and_both_count_it():
    schedule = FaultSchedule([transfer_fault("failed", count=1), transfer_fault("cancelled", count=2)], 0)
    assert drawn(schedule, ["load"] * 3) == ["failed", "cancelled", None]
    assert (schedule.injected["failed"], schedule.injected["cancelled"]) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "keywords", "says"),
    [
        ("broken", {}, "kind: 'broken' is no transfer fault; give one of late, short"),
        ("failed-", {}, "kind: 'failed-' is no"),
        ("failed-swap", {}, "kind: 'failed-swap' is no"),
        ("failed", {"ranks": []}, r"ranks: \[\] names no rank"),
        ("failed", {"ranks": [-1]}, r"ranks: \[-1\] names no rank"),
        ("failed", {"after": -1}, "after: -1 is negative"),
        ("failed", {"count": 0}, "count: 0 hits nothing"),
        ("late", {}, "delay_ms: 0 delays nothing"),
        ("lost", {"delay_ms": -1}, "delay_ms: -1 delays nothing"),
        ("late", {"delay_ms": float("inf")}, "delay_ms: inf delays nothing"),
        ("short", {"delay_ms": 3}, "delay_ms: a short transfer has no delay"),
    ],
)
def test_what_cannot_be_meant_is_refused(kind, keywords, says):
    with pytest.raises(ValueError, match=says) as error:
        transfer_fault(kind, **keywords)
    assert "\n" not in str(error.value)


def test_faults_are_read_without_numpy():
    code = "import sys; import linker.faults; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
