"""A run whose shadow drops causes as soon as it may finds the same, says the same, and keeps no more than it needs."""

from __future__ import annotations

import pytest

from stress.check import state
from stress.check.causes import Causes
from stress.config import load_config
from stress.matrix.drive import drive
from stress.probe.request_watch import RequestWatch

SHORT = ("layout.tp_size=1", "layout.dp_size=1", "check.require=[]", "workload.requests=250")


def result_of(name: str, arm: str, *overrides: str):
    (result,) = drive(load_config(name, [*SHORT, *overrides]), arm, lambda rank: lambda line: None, None)
    return result


@pytest.fixture
def made(monkeypatch) -> list[Causes]:
    """The causes of shadows that have no room to spare."""
    made: list[Causes] = []

    def sparing(named) -> Causes:
        made.append(Causes(named, spare=0))
        return made[-1]

    monkeypatch.setattr(state, "Causes", sparing)
    return made


@pytest.mark.parametrize(
    "case",
    [
        ("smoke", "unpatched", "check.on_assert=count"),
        ("smoke", "patched"),
        ("linker-swa", "reference", "arms.reference.fault=F01", "check.on_assert=count"),
        ("small-window", "reference", "arms.reference.fault=F17"),
        ("paged", "reference", "arms.reference.fault=F12"),
        ("paged", "reference", "check.level=3", "workload.requests=40"),
    ],
    ids=lambda case: "-".join(case[:2]) + ("" if len(case) == 2 else f"-{case[2]}"),
)
def test_dropping_causes_changes_nothing_that_is_found_or_said(case, request):
    known = result_of(*case)
    made = request.getfixturevalue("made")
    sparing = result_of(*case)
    assert (sparing.digest, sparing.status, sparing.operations) == (
        known.digest,
        known.status,
        known.operations,
    )
    assert sparing.checker_crashed == known.checker_crashed == ""
    assert sparing.findings == known.findings
    assert sparing.first_finding == known.first_finding
    (causes,) = made
    assert len(causes.known) < causes.following


def test_the_checks_keep_nothing_of_requests_that_have_gone(made, monkeypatch):
    watches: list[RequestWatch] = []
    known = RequestWatch.__init__

    def remembered(self, *arguments) -> None:
        known(self, *arguments)
        watches.append(self)

    monkeypatch.setattr(RequestWatch, "__init__", remembered)
    result = result_of("smoke", "patched", "workload.requests=600")
    assert result.requests_finished > 400
    (watch,), (causes,) = watches, made
    assert not watch._tables and not watch._committed and not watch._admitted
    assert causes.following > 2000
    assert len(causes.known) < 1000
