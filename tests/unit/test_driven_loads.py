"""The loop of an engine that schedules by itself, where requests wait for loads: their ends, failures, who leaves."""

from __future__ import annotations

from driven_bench import Scripted, planned, run

from stress.serving.request import CANCEL_DECODE, CANCEL_PREFILL

NEVER = None


class Loading(Scripted):
    """`loads`: request -> when its load ends, NEVER, or a negative time: it fails then. `stores`: requests whose pages
    are being stored as soon as they run; `last_us`: when the last store ends."""

    def __init__(self, loads=None, stores=(), last_us=None):
        super().__init__()
        self.loads, self.stores, self.last_us = dict(loads or {}), stores, last_us
        self.updates = []
        self.failed = 0

    def schedule(self):
        self.refuses = tuple(self.loads)
        return super().schedule()

    def pending_us(self):
        told = [abs(at_us) for rid, at_us in self.loads.items() if at_us is not NEVER and rid in self.known]
        return min([*told, *([] if self.last_us is None else [self.last_us])], default=None)

    def failures_told(self):
        return self.failed

    def transfer_of(self, rid):
        return "load" if rid in self.loads else "store" if rid in self.stores else ""

    def update(self, rows):
        self.updates.append((self.now_us, [rid for rid, _ in rows]))
        ended = list(super().update(rows))
        for rid, at_us in list(self.loads.items()):
            if at_us is not NEVER and abs(at_us) <= self.now_us:
                del self.loads[rid]
                if at_us < 0:
                    self.failed += 1
                    ended.append(rid)
                    del self.known[rid]
        if self.last_us is not None and self.last_us <= self.now_us:
            self.last_us = None
        return tuple(ended)


def test_a_load_is_waited_for_on_an_idle_rank_and_told_in_an_update_of_its_own():
    engine = Loading({0: 5000})
    state, stuck = run(engine, planned(0, output=1))
    assert (state.counts["finished"], stuck) == (1, [])
    assert engine.updates[0] == (5000, [])
    assert engine.steps == 5  # one before, one as it ends, three of the prompt


def test_others_run_meanwhile_and_take_the_word_with_them():
    engine = Loading({0: 3000})
    state, stuck = run(engine, planned(0), planned(1))
    assert (state.counts["finished"], stuck) == (2, [])
    assert all(rows for _, rows in engine.updates)


def test_who_comes_meanwhile_is_not_kept_waiting():
    engine = Loading({0: 500_000})
    state, _ = run(engine, planned(0), planned(1, start_us=2000))
    assert state.counts["finished"] == 2
    assert engine.updates[0][0] < 10_000


def test_a_load_whose_end_nobody_tells_ends_its_request_and_no_other():
    state, stuck = run(Loading({0: NEVER, 2: NEVER}), planned(0), planned(1), planned(2))
    assert (state.counts["finished"], state.counts["stuck"]) == (1, 2)
    assert stuck == [(rid, "waits for a load whose end nobody has told") for rid in (0, 2)]


def test_a_request_that_the_engine_ends_for_its_failed_load_counts_as_cancelled():
    state, stuck = run(Loading({0: -4000}), planned(0), planned(1, after=0))
    assert (state.counts["cancelled"], state.counts["finished"], stuck) == (1, 1, [])


def test_stores_end_behind_the_last_request():
    engine = Loading(last_us=90_000)
    state, _ = run(engine, planned(0))
    assert engine.updates[-1] == (90_000, [])
    assert state.now_us == 90_000 and state.last_end_us < 90_000


def test_clients_leave_while_a_load_or_a_store_is_under_way():
    """One in four of those that leave in their prefill or as they decode; the others stay until then."""
    engine = Loading({3: 50_000, 5: 4000}, stores=(7, 9))
    given = {"cancel": CANCEL_PREFILL, "cancel_tokens": 20}
    late = {"cancel": CANCEL_DECODE, "cancel_tokens": 4}
    state, _ = run(
        engine, planned(3, **given), planned(5, **given), planned(7, **late), planned(9, **late), planned(1)
    )
    assert (state.counts["cancelled"], state.counts["finished"]) == (4, 1)
    left = {rid: computed for _, _, rid, computed in engine.said}
    assert left[3] == 0 and left[5] == 20  # while its load was under way; when its prompt was computed
    assert left[7] < 20 < left[9]
    marks = {mark: count for mark, count in state.marks.items() if mark.startswith("aborted")}
    assert marks == {"aborted_loading": 1, "aborted_storing": 2, "aborted_decode": 1}
