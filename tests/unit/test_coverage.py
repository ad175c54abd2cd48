"""Marks are counted, told once, and read off events only where they mean something."""

import numpy as np

from stress.check.coverage import Coverage
from stress.check.event import Cause, EdgeShape, Event, EventKind

EDGES = (EdgeShape("full", "swa", no_peer=0),)
NONE = np.empty(0, dtype=np.int64)


def intent(operation, pool, pages, peers=None, step=""):
    peers = None if peers is None else np.array(peers)
    cause = Cause(operation, "extend", -1, step)
    return Event(EventKind.INTENT, pool, np.array(pages), peers, cause, 1, "free", 0)


def group(kind, pool="swa"):
    return Event(kind, pool, NONE, None, Cause(1, "results_begin", -1, ""), 1, "", 0)


def test_marks_are_told_the_first_time_and_counted_after():
    told = []
    coverage = Coverage(EDGES, on_mark=lambda mark, operation: told.append((mark, operation)))
    coverage.add("load_back", 3)
    coverage.add("load_back", 5, times=2)
    coverage.add("offloaded", 6, times=0)
    assert told == [("load_back", 3)]
    assert coverage.reached == {"load_back": 3} and coverage.first == {"load_back": 3}
    assert coverage.missing(["offloaded", "load_back"]) == ["offloaded"]


def test_evictions_need_pages_with_peers():
    coverage = Coverage(EDGES)
    coverage.observe(intent(1, "swa", [1, 2], [0, 0], "SWA eviction"))
    assert coverage.reached == {}
    coverage.observe(intent(2, "swa", [1, 2], [0, 7], "SWA eviction"))
    coverage.observe(intent(3, "full", [1, 2], None, "cache eviction"))
    coverage.observe(intent(4, "swa", [1], [7], "window"))
    coverage.observe(intent(5, "full", [1], None, "release"))
    assert coverage.first == {"swa_evicted": 2, "full_evicted": 3, "swa_released_out_of_window": 4}


def test_unmapped_pages_count_in_an_open_group_only():
    coverage = Coverage(EDGES)
    coverage.observe(intent(1, "swa", [1], [0]))
    coverage.observe(group(EventKind.GROUP_BEGIN))
    coverage.observe(intent(2, "swa", [1], [7]))
    assert coverage.reached == {}
    coverage.observe(intent(3, "swa", [1, 2], [7, 0]))
    coverage.observe(group(EventKind.GROUP_END))
    coverage.observe(intent(4, "swa", [1], [0]))
    assert (
        coverage.reached == {"free_group_with_unmapped": 1}
        and coverage.first["free_group_with_unmapped"] == 3
    )
