"""The records of a configuration: one frozen record a TOML table, attribute names are the TOML keys.

The records say types and defaults; what the values must hold together is `stress.config_checks`, where a
configuration is found and read is `stress.config`. `Config.to_dict` gives TOML-shaped plain data (tables,
lists, strings, numbers) and `from_dict` takes it back: that is what a rank and a manifest get.
The table [arms] holds its own key `mode` beside tables of any name, so it is taken apart by hand.
"""

from __future__ import annotations

import difflib
from typing import Any, Literal, get_args, get_type_hints

import msgspec

TOP = "the top level"


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
    swa_pages: int = 1_326
    window_tokens: int = 128
    unified_kv: bool = True  # the target keeps its window per request, so the linker skips SWA
    swa_ring: bool = False  # no paged SWA pool at all


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
    namespaces: int = 1
    on_bad_row: Literal["fail", "skip"] = "fail"


class Serving(_Table):
    chunk_tokens: int = 16_384
    max_running: int = 64  # per rank
    draft_tokens: int = 4  # 0: no speculative decoding
    accept_mean: float = 2.49  # tokens that a step yields; without drafts it is 1
    step_base_ms: float = 150.0
    prefill_tokens_per_s: float = 16_000.0


class LinkerFault(_Table):
    """One fault of the external store's transfers on some ranks."""

    kind: str
    ranks: list[int] | None = None  # None: all
    after: int = 0  # transfers that go well first
    count: int | None = None
    delay_ms: float = 0.0


class Linker(_Table):
    enabled: bool = True
    store: Literal["memory", "shared"] = "shared"
    warm: bool = True  # the store holds what the sessions wrote before the run began
    delay_ms: float = 5.0
    faults: list[LinkerFault] = []


class Check(_Table):
    level: int = 2  # 0 counters, 1 each operation, 2 and sweeps, 3 sweeps after each step
    on_assert: Literal["stop", "count"] = "stop"
    on_finding: Literal["stop", "count"] = "count"
    require: list[str] = []  # marks that a run must have reached to mean anything


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

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Config:
        return from_dict(data)


def from_dict(data: dict[str, Any]) -> Config:
    """The records of plain data. Raises ConfigError `PATH: what; the cure` for a wrong key or type."""
    _refuse_unknown_keys(data)
    plain = {key: value for key, value in data.items() if key != "arms"}
    arms = data.get("arms", {})
    named = {name: _convert(arm, Arm, f"arms.{name}") for name, arm in arms.items() if name != "mode"}
    mode = {"mode": arms["mode"]} if "mode" in arms else {}
    config = _convert(plain, Config, "")
    return msgspec.structs.replace(config, arms=_convert({**mode, "named": {}}, Arms, "arms", named=named))


def _convert(data: Any, record: type, at: str, **fields: Any) -> Any:
    try:
        value = msgspec.convert(data, record)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        path = f"{at}{where.rstrip('`')}".lstrip(".") or TOP
        raise ConfigError(f"{path}: {what}; {_cure(what, path)}") from None
    return msgspec.structs.replace(value, **fields) if fields else value


def _cure(what: str, path: str) -> str:
    if "missing required field" in what:
        return "add it"
    if "Invalid enum value" in what:
        return f"choose {' or '.join(_choices(path))}"
    return "give a value of the type that is expected"


def _choices(path: str) -> list[str]:
    """The words that the key at `path` takes."""
    table, _, key = path.rpartition(".")
    records = {"arms": Arms, **{field.name: field.type for field in msgspec.structs.fields(Config)}}
    record = Arm if table.startswith("arms.") else records[table]
    hint = get_type_hints(record)[key]
    if not all(isinstance(word, str) for word in get_args(hint)):
        hint = next(part for part in get_args(hint) if part is not type(None))  # an optional choice
    return list(get_args(hint))


def _without_nulls(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _refuse_unknown_keys(data: dict[str, Any]) -> None:
    tables = {"linker.faults": LinkerFault}
    fields = {field.name: field.type for field in msgspec.structs.fields(Config)}
    _refuse_others(data, fields, "")
    for name, value in data.items():
        if not isinstance(value, dict):
            if name not in ("name", "seed"):
                raise ConfigError(
                    f"{name}: expected a table, got {value!r}; write [{name}] and its keys below it"
                )
            continue
        if name == "arms":
            _refuse_unknown_arm_keys(value)
            continue
        if name in ("name", "seed"):
            raise ConfigError(f"{name}: expected a value, got a table; write {name} = ... at the top")
        keys = {field.name: field.type for field in msgspec.structs.fields(fields[name])}
        _refuse_others(value, keys, f"{name}.")
        for key, record in tables.items():
            table, _, field = key.partition(".")
            rows = value.get(field, []) if table == name else []
            for index, row in enumerate(rows if isinstance(rows, list) else []):
                if isinstance(row, dict):
                    _refuse_others(row, record.__struct_fields__, f"{key}[{index}].")


def _refuse_unknown_arm_keys(arms: dict[str, Any]) -> None:
    for name, arm in arms.items():
        if isinstance(arm, dict):
            _refuse_others(arm, Arm.__struct_fields__, f"arms.{name}.")
        elif name != "mode":
            raise ConfigError(
                f"arms.{name}: unknown key; [arms] has mode, and a table [arms.NAME] for each arm"
            )


def _refuse_others(table: dict[str, Any], keys: Any, at: str) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, list(keys), n=1, cutoff=0.6)
            cure = f"did you mean {at}{near[0]}?" if near else f"the keys there are {', '.join(keys)}"
            raise ConfigError(f"{at}{key}: unknown key; {cure}")
