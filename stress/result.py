"""What a rank is told and what it tells: frozen records that travel by the launcher, never by a collective.

A `RankSpec` is everything that a rank needs to run alone: it rebuilds its plan, engine and checks from it.
A `RankResult` is everything that a rank found out; it is data also when the rank failed. Both are msgspec
records, so the same bytes go through a pipe, a Ray object or a JSONL line. Virtual time is in integer
microseconds here and in seconds (`virtual_s`) only where `verdict.json` is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from stress.operation import Operation


def utf8_text(text: str) -> str:
    """The text of an exception, with escapes for lone surrogates: a name that was no UTF-8 may be quoted in it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


Status = Literal["finished", "asserted", "errored", "lost", "stopped"]


class RankSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank of one arm. `config` is the resolved configuration as plain TOML-shaped data."""

    config: dict
    arm: str
    rank: int  # in the whole layout: names its files and its GPU
    ranks: int  # of the arm
    seed: int
    index: int = -1  # its place among the arm's ranks, 0 to ranks - 1; not given: the rank
    run_dir: str | None = None  # where ranks/ and ops/ lie; None: nothing is written
    device: str = "cpu"
    tree: str | None = None  # the folder of the arm's real engine; None: the reference

    def __post_init__(self) -> None:
        if self.index < 0:
            msgspec.structs.force_setattr(self, "index", self.rank)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The first violation of one rule in one pool of one rank, kept whole.

    `operation` is the faulty operation (the one that asked for it), `noticed` the one at whose end it became
    visible: a deferred free is asked for in a checkpoint and comes back at the flush.
    """

    rule: str
    pool: str
    operation: int
    noticed: int
    virtual_us: int
    page: int
    message: str
    history: list[str] = []


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """An assertion of the target itself."""

    operation: int
    virtual_us: int
    where: str
    message: str


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of the target, or a request that neither finished nor was cancelled."""

    operation: int
    virtual_us: int
    kind: str
    message: str
    traceback: str = ""


class StepPlans(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank gathered of all ranks' step plans. `idle`, `extend`, `decode`: its own turns at the exchanges."""

    exchanges: int
    idle: int
    extend: int
    decode: int
    idle_beside_busy: int  # exchanges at which it was idle while a peer had tokens
    digest: str  # over all gathered tables
    over: str = ""  # the backend that they travelled by: gloo or nccl; "" within one process


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank found out. `findings` counts by rule; `kept` holds the first of each (pool, rule) whole."""

    arm: str
    rank: int
    dp_rank: int
    attn_tp_rank: int
    device: str
    pid: int
    status: Status
    asserts: int = 0
    errors: int = 0
    requests_started: int = 0
    requests_finished: int = 0
    requests_cancelled: int = 0
    operations: int = 0
    virtual_us: int = 0
    digest: str = ""
    digest_partial: bool = False  # a peer was lost: the survivors went on without its news
    first_assert: Assertion | None = None
    first_error: RankError | None = None
    first_finding: Finding | None = None
    findings: dict[str, int] = {}
    kept: list[Finding] = []
    faults_reached: dict[str, int] = {}  # named fault -> operation at which its trigger was first present
    marks: dict[str, int] = {}
    marks_exempt: list[str] = []  # marks that this engine can't show, or never does by design
    rules_watched: list[str] = []
    free_at_start: list[int] = []  # pages by pool, as the target counts them before anything is lent
    checker_crashed: str = ""  # traceback of a crashed check: makes the verdict unknown
    rows_skipped: int = 0
    message: str = ""  # for lost or stopped: why
    step_plans: StepPlans | None = None


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat", tag_field="event"):
    """A sign of life at an exchange boundary."""

    virtual_us: int
    operations: int
    requests_finished: int
    requests_cancelled: int
    running: int
    findings: int


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started", tag_field="event"):
    """First line of a rank file."""

    arm: str
    rank: int
    pid: int
    device: str
    target: str


class FindingLine(msgspec.Struct, frozen=True, kw_only=True, tag="finding", tag_field="event"):
    finding: Finding


class AssertLine(msgspec.Struct, frozen=True, kw_only=True, tag="assert", tag_field="event"):
    assertion: Assertion


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True, tag="error", tag_field="event"):
    error: RankError


class MarkLine(msgspec.Struct, frozen=True, kw_only=True, tag="mark", tag_field="event"):
    """A mark was reached for the first time."""

    mark: str
    operation: int


class ResultLine(msgspec.Struct, frozen=True, kw_only=True, tag="result", tag_field="event"):
    """Last line of a rank file."""

    result: RankResult


class OperationBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Operations to be recorded, oldest first; they go into the rank's operation file, not into its rank file."""

    operations: list[Operation]


RankLine = Started | Heartbeat | FindingLine | AssertLine | ErrorLine | MarkLine | ResultLine
Emit = Callable[[RankLine | OperationBlock], None]
