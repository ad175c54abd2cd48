"""Whole ranks whose events are checked some operations later find what those find that are checked at once."""

from __future__ import annotations

import numpy as np
import pytest
from rank_driver import run_arm

from stress import rank_parts
from stress.check.event import Event
from stress.config import load_config
from stress.matrix.drive import drive
from stress.operator import Operator
from stress.probe import allocator_watch, probe
from stress.probe.capture import DeviceReader
from stress.probe.journal import Journal
from stress.result import FindingLine

ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1", "workload.requests=150", "workload.concurrency=12")
SAME = ("status", "digest", "findings", "kept", "marks", "checker_crashed")


@pytest.mark.parametrize("arm", ["unpatched", "patched"])
def test_what_lands_late_is_judged_as_what_is_seen_at_once(arm, monkeypatch):
    """Some operations later on a host, and a GPU's path on host tensors: the same findings, operations and marks."""
    shape = ("check.on_assert=count", *ONE_RANK)
    (late,) = run_arm(arm, *shape)[0]
    monkeypatch.setattr(rank_parts, "LANDS_EVERY", 0)
    (at_once,) = run_arm(arm, *shape)[0]
    monkeypatch.setattr(allocator_watch, "reader_for", lambda device: DeviceReader())
    (device,) = run_arm(arm, *shape)[0]
    assert bool(at_once.findings) is (arm == "unpatched")
    for name in SAME:
        assert getattr(late, name) == getattr(at_once, name), name
        assert getattr(device, name) == getattr(at_once, name), name
    assert late.rules_watched == at_once.rules_watched
    assert set(late.rules_watched) - set(device.rules_watched) == {"I8"}


def test_an_assertion_leaves_nothing_unseen(monkeypatch):
    """The rank ends with the operation that raises: the findings of that operation are its first."""
    monkeypatch.setattr(rank_parts, "LANDS_EVERY", 1_000_000)
    (result,) = run_arm("unpatched", *ONE_RANK)[0]
    assert result.status == "asserted"
    assert result.first_finding.noticed == result.first_assert.operation == result.operations


@pytest.mark.parametrize("number", [12, 28, 53])
def test_what_was_seen_before_the_loop_failed_is_checked(number, monkeypatch):
    """An exception that is nobody's answer ends the rank: what led there is in its file even so."""
    issue = Operator._issue

    def failing(operator, *args):
        if operator.number == number:
            raise KeyError("a corrupt target's answer")
        return issue(operator, *args)

    def found(lands_every):
        monkeypatch.setattr(rank_parts, "LANDS_EVERY", lands_every)
        lines = []
        with pytest.raises(KeyError, match="corrupt"):
            config = load_config("smoke", ["check.on_assert=count", *ONE_RANK])
            drive(config, "unpatched", lambda _rank: lines.append)
        return [line.finding for line in lines if isinstance(line, FindingLine)]

    monkeypatch.setattr(Operator, "_issue", failing)
    at_once = found(0)
    assert len(at_once) > 1 and found(64) == found(1) == at_once


def test_what_waits_is_bounded(monkeypatch):
    """However many operations may wait, their events are checked when they are many."""
    waited, land = [], Journal.land
    monkeypatch.setattr(Journal, "land", lambda journal: (waited.append(len(journal.waiting)), land(journal)))
    monkeypatch.setattr(rank_parts, "LANDS_EVERY", 1_000_000)
    monkeypatch.setattr(probe, "MOST_EVENTS", 50)
    (result,) = run_arm("patched", *ONE_RANK, "workload.requests=30")[0]
    assert result.status == "finished" and not result.findings
    assert len(waited) > 10 and 50 <= np.median(waited) < 100


@pytest.mark.parametrize("name", ["paged", "linker-swa", "ring"])
def test_nobody_writes_to_what_waits(name, monkeypatch):
    """An event owns its pages: what the engine does meanwhile changes none of those that wait."""
    told, tell, land = [], Journal.tell, Journal.land

    def keeping(journal, *args, **kwargs):
        before = len(journal.waiting)
        tell(journal, *args, **kwargs)
        told.extend((event, *_copies(event)) for event in journal.waiting[before:])

    def comparing(journal):
        for event, pages, peers in told:
            assert np.array_equal(event.pages, pages), f"{event.kind.value} of {event.method}"
            assert peers is None or np.array_equal(event.peers, peers), (
                f"{event.kind.value} of {event.method}"
            )
        compared.append(len(told))
        told.clear()
        land(journal)

    compared = []
    monkeypatch.setattr(Journal, "tell", keeping)
    monkeypatch.setattr(Journal, "land", comparing)
    config = load_config(name, ["workload.requests=80", "check.require=[]"])
    results = drive(config, "reference", lambda _rank: lambda _line: None)
    assert all(result.status == "finished" for result in results)
    assert sum(compared) > 1000 and max(compared) > 50


def _copies(event: Event):
    return np.array(event.pages), None if event.peers is None else np.array(event.peers)
