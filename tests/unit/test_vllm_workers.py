"""What the played workers of vLLM's connector copy and tell, and what is drawn to go wrong with it. Needs no tree."""

from types import SimpleNamespace

import pytest

from stress.config_schema import Injections as Given
from stress.engine.vllm.injections import LOADS_THAT_FAIL, Injections
from stress.engine.vllm.worker_side import NO_EVENT, Workers

STEP_US = 1000
TABLES = {"7": {3, 4, 5}, "8": {6}}


class Output:
    """As the tree's KVConnectorOutput, the newer one."""

    def __init__(
        self, finished_recving=None, kv_connector_worker_meta=None, invalid_block_ids=(), failed_recving=()
    ):
        self.loaded, self.stored = tuple(finished_recving or ()), kv_connector_worker_meta
        self.invalid, self.failed = set(invalid_block_ids), set(failed_recving)


TREE = SimpleNamespace(
    outputs=SimpleNamespace(KVConnectorOutput=Output),
    simple_offload_metadata=SimpleNamespace(SimpleCPUOffloadWorkerMetadata=dict),
)


def injections(seed=1, rank=0, **given):
    return Injections(Given(**given), seed=seed, rank=rank, step_us=STEP_US)


class Bench:
    """Workers of which everything is noted that they say of their copies."""

    def __init__(self, *, workers=1, stores_wait=True, by_page=True, by_request=False, **given):
        self.said = []
        self.workers = Workers(
            TREE,
            injections(**given),
            TABLES.get,
            delay_us=100,
            stores_wait=stores_wait,
            workers=workers,
            by_page=by_page,
            by_request=by_request,
        )
        for name in ("begin", "copy", "end"):
            setattr(
                self.workers,
                f"on_{name}",
                lambda copy, name=name: self.said.append((name, copy.ticket, copy.pages)),
            )

    def store(self, pages, event=0, now_us=0):
        self.begin(
            now_us, store_event=event, store_gpu_blocks=pages, store_cpu_blocks=[p + 50 for p in pages]
        )

    def load(self, pages, requests, event=0, now_us=0):
        more = {"load_gpu_blocks": pages, "load_cpu_blocks": pages, "load_event_to_reqs": {event: requests}}
        return self.begin(now_us, load_event=event, **more)

    def begin(self, now_us, **meta):
        return self.workers.begin(
            SimpleNamespace(**{"store_event": NO_EVENT, "load_event": NO_EVENT} | meta), now_us
        )

    def at(self, now_us):
        return self.workers.answers(now_us)


def test_a_store_waits_for_its_pass_and_a_load_for_none():
    bench = Bench()
    bench.store([1, 2])
    assert bench.load([3, 4], ["7"]) == ("7",)
    assert [said[:2] for said in bench.said] == [("begin", 1), ("begin", 2), ("copy", 2)]
    assert bench.workers.waits_for_pass and bench.workers.in_flight() == (1, 1)
    (told,) = bench.at(50)
    assert bench.said[-1][:2] == ("copy", 1) and (told.loaded, told.stored) == ((), None)
    assert (bench.workers.pending_us(), bench.workers.is_loading("7")) == (100, True)
    (told,) = bench.at(100)
    assert (told.loaded, told.stored) == (("7",), None)
    (told,) = bench.at(150)
    assert told.stored == {0: 1}
    assert bench.workers.in_flight() == (0, 0) and bench.workers.pending_us() is None


def test_a_store_that_does_not_wait_is_copied_as_it_begins():
    bench = Bench(stores_wait=False)
    bench.store([1])
    assert [said[0] for said in bench.said] == ["begin", "copy"]


def test_what_a_request_s_end_holds_is_under_way_from_then_on():
    bench = Bench()
    bench.workers.hold([4, 5])
    bench.workers.hold([6])
    assert bench.workers.in_flight() == (0, 2) and bench.workers.are_stored({6})
    bench.store([9, 4, 5, 6])
    assert bench.said == [("begin", 1, [4, 5]), ("begin", 2, [6]), ("begin", 3, [9])]
    bench.at(0)
    bench.at(100)
    assert bench.said[3:] == [
        (name, n, p) for name in ("copy", "end") for n, p in ((3, [9]), (1, [4, 5]), (2, [6]))
    ]
    assert bench.workers.in_flight() == (0, 0)


def test_a_store_without_the_pages_that_were_held_for_it_is_no_road_that_is_known():
    bench = Bench()
    bench.workers.hold([4, 5])
    with pytest.raises(RuntimeError, match=r"does not end with pages \[4, 5\]"):
        bench.store([4, 9])


def test_a_late_copy_ends_a_few_steps_later():
    bench = Bench(late_loads=1, steps_late=3)
    bench.load([3], ["7"])
    assert bench.workers.pending_us() - 100 in (STEP_US, 2 * STEP_US, 3 * STEP_US)
    assert bench.at(100)[0].loaded == () and bench.at(100 + 3 * STEP_US)[0].loaded == ("7",)


def test_an_end_that_is_told_twice_is_one_end_to_the_ledger():
    bench = Bench(twice_stores=1, twice_loads=1, steps_late=1)
    bench.store([1], event=4)
    bench.load([3], ["7"])
    bench.at(0)
    first = bench.at(100)[0]
    again = bench.at(100 + STEP_US)[0]
    assert (first.loaded, first.stored) == (again.loaded, again.stored) == (("7",), {4: 1})
    assert [said[0] for said in bench.said].count("end") == 2


def test_nobody_tells_an_end_twice_in_one_answer():
    bench = Bench(twice_stores=1, steps_late=1)
    bench.store([1])
    bench.at(0)
    assert bench.at(10 * STEP_US)[0].stored == {0: 1}
    assert bench.at(10 * STEP_US)[0].stored == {0: 1}
    assert bench.at(20 * STEP_US)[0].stored is None


def test_a_failure_that_waits_its_turn_is_told_before_its_end_is_told_again():
    """One load fails in an answer; what was told of the other must not sound as if it had come."""
    bench = Bench(failed_loads=1, twice_loads=1, steps_late=1)
    bench.load([3, 4, 5], ["7"], event=0)
    bench.load([6], ["8"], event=1)
    (first,), (second,) = bench.at(50 * STEP_US), bench.at(50 * STEP_US)
    assert first.loaded == ("7",) and first.invalid <= {3, 4, 5}
    assert set(second.loaded) == {"7", "8"} and second.invalid == {6}


def test_an_end_that_is_never_told_stays_under_way():
    bench = Bench(lost_loads=1)
    bench.load([3], ["7"])
    assert bench.at(10**9)[0].loaded == ()
    assert (bench.workers.pending_us(), bench.workers.never_told_us()) == (None, 100)
    assert bench.workers.in_flight() == (1, 0) and bench.workers.is_loading("7")


def test_a_copy_ends_when_its_last_worker_has_told_it():
    bench = Bench(workers=3, late_stores=0.5, steps_late=9, seed=3)
    bench.store([1])
    bench.at(0)
    told = [sum(bool(one.stored) for one in bench.at(100 + step * STEP_US)) for step in range(10)]
    assert sum(told) == 3 and 0 < told[0] < 3
    assert bench.said[-1] == ("end", 1, [1])


def test_pages_that_do_not_come_are_told_and_hold_nothing():
    bench = Bench(failed_loads=1)
    bench.load([3, 4, 5, 6], ["7", "8"])
    (told,) = bench.at(100)
    assert told.loaded == ("7", "8") and told.failed == set()
    assert told.invalid and told.invalid <= {3, 4, 5} and told.invalid == {3, 4, 5} - set(bench.said[-1][2])
    assert bench.workers.ended["failed"] == 1


def test_a_failed_load_is_told_by_its_request_where_pages_may_not_be():
    bench = Bench(failed_loads=1, by_page=False, by_request=True)
    bench.load([3, 4, 5], ["7"])
    (told,) = bench.at(100)
    assert (told.failed, told.invalid, bench.said[-1]) == ({"7"}, set(), ("end", 1, []))


def test_a_request_s_load_fails_no_more_than_twice():
    bench = Bench(failed_loads=1)
    for event in range(LOADS_THAT_FAIL + 2):
        bench.load([3, 4], ["7"], event=event, now_us=event * 1000)
        bench.at(event * 1000 + 100)
    assert bench.workers.ended == {"load": LOADS_THAT_FAIL + 2, "failed": LOADS_THAT_FAIL}


def test_draws_are_the_seed_s_the_rank_s_and_their_own():
    def drawn(**given):
        draws = injections(late_loads=0.3, lost_stores=0.3, **given)
        return [
            [draws.late_us("load", event, 0) for event in range(200)],
            [draws.is_lost("offload", event, 0) for event in range(200)],
        ]

    late, lost = drawn()
    assert drawn() == [late, lost] == drawn(twice_loads=0.9, failed_loads=0.9)
    assert 30 < sum(map(bool, late)) < 90 and 30 < sum(lost) < 90
    assert [bool(one) for one in late] != lost
    assert drawn(seed=2)[0] != late != drawn(rank=1)[0]
    assert not any(injections().late_us("load", event, 0) for event in range(200))
