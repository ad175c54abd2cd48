"""The short way through the ledger against the long one: the same findings, and the same shadow at the end."""

import functools

import numpy as np
import pytest
from rank_driver import run_arm

from stress import rank_evidence
from stress.check.event import Event, EventKind
from stress.check.shadow import Ledger

ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1", "workload.concurrency=16", "check.require=[]")
COUNT = (*ONE_RANK, "check.on_assert=count")
RUNS = {
    "clean": ("smoke", "patched", (*ONE_RANK, "workload.requests=60")),
    "faulty": ("smoke", "unpatched", (*COUNT, "workload.requests=60")),
    "SWA restored": ("smoke", "patched", (*ONE_RANK, "workload.requests=60", "pool.unified_kv=false")),
    "small pages": (
        "smoke",
        "patched",
        (*ONE_RANK, "workload.requests=30", "pool.page_size=16", "pool.swa_pages=112"),
    ),
    "ring": ("ring", "reference", ("workload.requests=60",)),
    "read at the flush": ("paged", "reference", ("arms.reference.fault=F06", "workload.requests=60")),
}


class Counted(Ledger):
    """A ledger that counts the events that rules judged, of them those that a proof might have taken, and those that
    are no counts, which it need not always be told."""

    events = judged = doubted = no_counts = 0

    def _take(self, events, *, settles):
        seen = [event for event in events if isinstance(event, Event)]
        self.events += len(seen)
        self.no_counts += sum(event.kind is not EventKind.COUNTS for event in seen)
        super()._take(events, settles=settles)

    def _judge(self, event, plan):
        self.judged += 1
        self.doubted += plan.few is not None or plan.many is not None
        super()._judge(event, plan)


def run(monkeypatch, short_cuts, config, arm, overrides):
    ledgers = []
    make = functools.partial(Counted, short_cuts=short_cuts)
    monkeypatch.setattr(rank_evidence, "Ledger", lambda *a, **k: ledgers.append(make(*a, **k)) or ledgers[-1])
    (result,) = run_arm(arm, *overrides, config=config)[0]
    return result, ledgers[0]


@pytest.mark.parametrize("name", RUNS)
def test_both_ways_find_the_same_and_leave_the_same_shadow(monkeypatch, name):
    short, short_ledger = run(monkeypatch, True, *RUNS[name])
    long, long_ledger = run(monkeypatch, False, *RUNS[name])
    assert short.checker_crashed == ""
    for field in ("status", "digest", "findings", "kept", "first_finding", "marks", "checker_crashed"):
        assert getattr(short, field) == getattr(long, field), field
    assert short_ledger.no_counts == long_ledger.no_counts
    assert short_ledger.events < long_ledger.events == long_ledger.judged
    for pool, shadow in short_ledger.shadow.pools.items():
        same_state(
            vars(shadow),
            vars(long_ledger.shadow.pools[pool]),
            "on_loan",
            "asked",
            "orphan",
            "owner",
            "tables",
        )
        same_state(
            vars(shadow), vars(long_ledger.shadow.pools[pool]), "lent", "asked_pages", "orphans", "surplus"
        )
    for edge, other in zip(short_ledger.shadow.edges, long_ledger.shadow.edges, strict=True):
        same_state(vars(edge), vars(other), "peer", "holder", "mapped")
    assert short_ledger.shadow.causes.known == long_ledger.shadow.causes.known
    if not short.findings:
        assert short_ledger.doubted < short_ledger.events / 5


def same_state(one, other, *names):
    for name in names:
        assert np.array_equal(one[name], other[name]), name


def test_after_a_violation_every_event_is_judged(monkeypatch):
    result, ledger = run(monkeypatch, True, *RUNS["faulty"])
    assert result.findings["I1"] > 0 and ledger.judged > ledger.events / 2
