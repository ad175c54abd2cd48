"""A result for a rank that gave none, made from its file.

The file holds each rule's first finding whole but only the last heartbeat's total of all, so counts by rule
are lower bounds, and the message says what the total was. A file whose last line is the rank's result is
believed: the rank was lost after its work was done.
"""

from __future__ import annotations

from collections import Counter

from stress.record import RankTail
from stress.result import RankResult, RankSpec, Status


def result_from_file(
    spec: RankSpec, tail: RankTail, attn_tp_size: int, status: Status, why: str
) -> RankResult:
    """What `tail` knows of the rank, with the status and the reason given."""
    if tail.result is not None:
        return tail.result
    beat = tail.heartbeat
    counts = Counter(finding.rule for finding in tail.findings)
    notes = [why] if why else []
    if beat is not None and beat.findings > len(tail.findings):
        notes.append(f"{beat.findings} findings in all at its last heartbeat")
    if tail.unreadable:
        notes.append(f"{tail.unreadable} unreadable lines in {tail.path.name}")
    return RankResult(
        arm=spec.arm,
        rank=spec.rank,
        dp_rank=spec.index // attn_tp_size,
        attn_tp_rank=spec.index % attn_tp_size,
        device=tail.started.device if tail.started else spec.device,
        pid=tail.started.pid if tail.started else 0,
        status=status,
        asserts=len(tail.assertions),
        errors=len(tail.errors),
        requests_started=beat.requests_finished + beat.requests_cancelled + beat.running if beat else 0,
        requests_finished=beat.requests_finished if beat else 0,
        requests_cancelled=beat.requests_cancelled if beat else 0,
        operations=beat.operations if beat else 0,
        virtual_us=beat.virtual_us if beat else 0,
        digest_partial=True,
        first_assert=tail.assertions[0] if tail.assertions else None,
        first_error=tail.errors[0] if tail.errors else None,
        first_finding=tail.findings[0] if tail.findings else None,
        findings=dict(sorted(counts.items())),
        kept=tail.findings,
        marks=dict.fromkeys(tail.marks, 1),
        message="; ".join(notes),
    )
