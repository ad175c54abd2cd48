"""What operations of each kind can do to requests, for the probe: looked up once an operation."""

from __future__ import annotations

from dataclasses import dataclass

from stress.operation import Kind


@dataclass(slots=True)
class Does:
    rows: bool  # change requests' rows
    grows: bool  # lengthen them alone
    extends: bool
    ends: bool  # end requests
    publishes: bool
    commits: bool
    admits: bool
    steps: bool  # are part of a step that the engine schedules by itself
    of_requests: bool  # its rows are requests


DOES = {
    kind: Does(
        rows=kind not in (Kind.COMMIT, Kind.RESULTS_BEGIN, Kind.RESULTS_END, Kind.EVICT_WINDOWS)
        and kind not in (Kind.EVICT, Kind.POLL, Kind.DRAIN, Kind.SUBMIT, Kind.SCHEDULE, Kind.UPDATE),
        grows=kind in (Kind.EXTEND, Kind.RESERVE),
        extends=kind is Kind.EXTEND,
        ends=kind in (Kind.FINISH, Kind.ABORT, Kind.RETRACT),
        publishes=kind in (Kind.CHECKPOINT, Kind.FINISH),
        commits=kind is Kind.COMMIT,
        admits=kind is Kind.ADMIT,
        steps=kind in (Kind.SCHEDULE, Kind.UPDATE),
        of_requests=kind is not Kind.EVICT,
    )
    for kind in Kind
}
