"""The records of a configuration: one frozen record a TOML table, attribute names are the TOML keys.

The records say types and defaults; what the values must hold together is `stress.config_checks`, where a
configuration is found and read is `stress.config`. `Config.to_dict` gives TOML-shaped plain data (tables,
lists, strings, numbers), which is what a rank and a manifest get; `stress.config_data` takes it back.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ConfigError(ValueError):
    """A user's mistake in a configuration, an override or an option: one line, with the cure."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table. Unknown keys are refused."""


class Layout(_Table):
    """One process per GPU rank: attention TP groups of tp_size / dp_size ranks, dp_size of them."""

    tp_size: int = 1
    dp_size: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"  # cuda is CUDA or ROCm
    placement: Literal["auto", "pack", "spread"] = "auto"  # of the ranks over a Ray cluster's nodes
    exchange_ms: int = 10_000  # virtual time between exchanges; 0: every step, in lock step
    backend: Literal["auto", "gloo", "nccl"] = "auto"  # of the step plans; nccl is RCCL on ROCm

    @property
    def ranks(self) -> int:
        return self.tp_size

    @property
    def attn_tp_size(self) -> int:
        return self.tp_size // self.dp_size

    def dp_rank(self, index: int) -> int:
        return index // self.attn_tp_size

    def attn_tp_rank(self, index: int) -> int:
        return index % self.attn_tp_size

    def of(self, ranks: int) -> Layout:
        """That of an arm of so many ranks: attention TP groups of the same size."""
        return msgspec.structs.replace(self, tp_size=ranks, dp_size=ranks // self.attn_tp_size)


class Pool(_Table):
    page_size: int = 256  # tokens
    full_pages: int = 13_266  # per rank, padding not counted
    swa_pages: int = 1_326  # nothing to an engine that is a pool alone, and no window
    window_tokens: int = 128
    unified_kv: bool = True  # the target keeps its window per request, so the linker skips SWA
    swa_ring: bool = False  # no paged SWA pool at all
    groups: list[str] = []  # of an engine with one pool for all: a table each (stress.pool_groups)


class Workload(_Table):
    trace: str = "generated:agentic"  # generated:NAME or a trace file
    requests: int = 11_450
    duration_s: float = 3_628.0  # cuts nominal starts
    loop: Literal["closed", "open"] = "closed"
    concurrency: int = 256  # lanes of sessions
    idle_cap_s: float = 300.0
    start_within: tuple[float, float] = (0.25, 0.75)
    speed: float = 1.0
    cancel_rate: float = 0.01
    fork_rate: float = (
        0.0  # share of requests that come twice at once: same prompt, output and client of their own
    )
    namespaces: int = 1
    on_bad_row: Literal["fail", "skip"] = "fail"
    ballast: float = 0.0  # share of the pages that is on loan to others from the first operation to the last


class Serving(_Table):
    chunk_tokens: int = 16_384
    max_running: int = 64  # per rank
    draft_tokens: int = 4  # 0: no speculative decoding
    # of a target whose own scheduler decides: whom it serves first, and the most of a prompt that a step takes, 0: all
    policy: Literal["fcfs", "priority"] = "fcfs"
    prompt_chunk_tokens: int = 0
    accept_mean: float = 2.49  # tokens that a step yields; without drafts it is 1
    step_base_ms: float = 150.0
    prefill_tokens_per_s: float = 16_000.0


class LinkerFault(_Table):
    """One fault of the external store's transfers on some ranks: see linker.faults."""

    kind: str  # late, short, failed, lost or cancelled, with -load or -offload for one direction
    ranks: list[int] | None = None  # None: all
    after: int = 0  # transfers that go well first
    count: int | None = None  # transfers that are hit; None: every later one
    delay_ms: float = 0.0  # of a late one, or the transport's timeout of a lost one


class Linker(_Table):
    enabled: bool = True
    store: Literal["memory", "shared"] = "shared"
    warm: bool = True  # the store holds what the sessions wrote before the run began
    delay_ms: float = 5.0
    faults: list[LinkerFault] = []
    host_pages: int = 0  # of an engine that offloads to its host: pages there; 0: twice the pool
    stores_wait: bool = True  # there: for the forward pass that is under way
    # of a target whose own scheduler decides: workers that each tell it the end of a copy, and what it does with a
    # request whose load has failed: it ends it, or computes what did not come
    workers: int = 1
    on_failed_load: Literal["fail", "recompute"] = "fail"


class Injections(_Table):
    """What goes wrong between a target's own scheduler and the workers that copy its pages: shares of the loads, or of
    the stores, drawn from the seed."""

    late_loads: float = 0.0  # end late
    late_stores: float = 0.0
    twice_loads: float = 0.0  # a worker tells the end a second time
    twice_stores: float = 0.0
    lost_loads: float = 0.0  # and never
    lost_stores: float = 0.0
    failed_loads: float = 0.0  # do not bring all pages of a request
    steps_late: int = 8  # at most, by so many steps' time: what is late, and what is told again


class Check(_Table):
    level: int = 2  # 0 counters, 1 each operation, 2 and sweeps, 3 sweeps after each step
    on_assert: Literal["stop", "count"] = "stop"
    on_finding: Literal["stop", "count"] = "count"
    # auto: sample at level 2, full at level 3; sample: two slots a page of what is read, full: every slot
    content: Literal["auto", "off", "sample", "full"] = "auto"
    bytes_per_token: int = 0  # that a slot's content takes on its device, with full; 0: a stamp's 8
    # one request in so many is watched closely: its window, locks, keys, content; and one store in so many
    closely: int = 1
    rules: list[str] = []  # those that are checked; none: all
    require: list[str] = []  # marks that a run must have reached to mean anything

    @property
    def content_checked(self) -> Literal["off", "sample", "full"]:
        """`content` with auto resolved."""
        if self.content != "auto":
            return self.content
        return {2: "sample", 3: "full"}.get(self.level, "off")


class Record(_Table):
    operations: Literal["none", "ring", "all"] = "ring"


class Deadlines(_Table):
    """How long a run waits, in seconds of wall time. What it decides never depends on them."""

    exchange_s: float = 120.0  # a rank for its peers at one exchange; who is late has lost the others
    placement_s: float = 120.0  # for the cluster to have room for the ranks (ray)
    loss_s: float = 60.0  # after a loss: without a heartbeat of any rank, until the others are given up
    stall_s: float = 900.0  # without a loss: the same; long enough for a slow start on a busy machine


class Arm(_Table):
    """A named target in a run. `expect` is the verdict that its author foresees."""

    target: str
    release: str | None = None
    fault: str | None = None
    tree_core: Literal["python", "rust"] | None = None  # of a real SGLang; None: the release's own default
    expect: Literal["pass", "fail"] = "pass"
    ranks: str | int | None = None  # "0-3", "0,2,4-6": where the arms run in parallel


class Arms(msgspec.Struct, frozen=True, kw_only=True):
    """The table [arms]: how they run, and each by its name in the order of the file."""

    mode: Literal["sequence", "parallel"] = "sequence"
    named: dict[str, Arm] = {}

    def record(self, arm: str) -> Arm:
        """The record of an arm, also of its second run NAME~2."""
        return self.named[arm] if arm in self.named else self.named[arm.partition("~")[0]]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, resolved."""

    name: str
    seed: int = 1
    layout: Layout = Layout()
    pool: Pool = Pool()
    workload: Workload = Workload()
    serving: Serving = Serving()
    linker: Linker = Linker()
    injections: Injections = Injections()
    check: Check = Check()
    record: Record = Record()
    deadlines: Deadlines = Deadlines()
    arms: Arms = Arms()

    def to_dict(self) -> dict[str, Any]:
        """TOML-shaped plain data: no tuples, no nulls."""
        data = msgspec.json.decode(msgspec.json.encode(self))
        arms = data.pop("arms")
        named = {name: _without_nulls(arm) for name, arm in arms["named"].items()}
        data["linker"]["faults"] = [_without_nulls(fault) for fault in data["linker"]["faults"]]
        data["arms"] = {"mode": arms["mode"], **named}
        return data


def _without_nulls(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
