"""What a launcher must hold.

A launcher starts the ranks of one arm, or of several at once, says how each of them ended, and ends them. It
decides no verdict and reads no rank file. It must hold that:
* a rank that ended is reported once, with its result or with the reason why there is none, never both;
* one rank's death costs no other rank's result, and reaches no other arm: the ranks of an arm exchange among
  themselves alone, in the order of their index;
* after `stop` no rank is alive, whatever state they were in; ranks also end when this process is killed;
* `start` after `stop` gives fresh ranks. `close` ends also what outlives an arm; both are idempotent.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from stress.result import RankResult, RankSpec

LAUNCHERS = ("ray", "local", "inline")
LOOPBACK = "127.0.0.1"


class LaunchError(RuntimeError):
    """The ranks could not be started: infrastructure, not a finding. One line with the cure."""


def backend_of(spec: RankSpec) -> str:
    """`layout.backend` of a rank's configuration; auto where that says nothing."""
    return spec.config.get("layout", {}).get("backend", "auto")


class RankOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank ended: with a result, or `lost` says why there is none. Exactly one of the two is set."""

    rank: int
    result: RankResult | None = None
    lost: str = ""

    def __post_init__(self) -> None:
        if (self.result is None) == (self.lost == ""):
            raise ValueError(f"rank {self.rank}: an outcome holds either a result or the reason for its loss")


def by_arm(specs: list[RankSpec]) -> dict[str, list[RankSpec]]:
    """The specs of each arm, by index."""
    arms: dict[str, list[RankSpec]] = {}
    for spec in sorted(specs, key=lambda spec: spec.index):
        arms.setdefault(spec.arm, []).append(spec)
    return arms


class Launcher(Protocol):
    """Starts ranks, and is stopped before it starts the next ones."""

    name: str

    def start(self, specs: list[RankSpec], entry: str) -> None:
        """Starts one rank for each spec.

        The specs are those of all arms that run at once. No two have the same `rank`; those of an arm have the
        indices 0 to `ranks` - 1 and form a process group of their own. Ranks that no spec has are left out:
        `rank` is the order of the devices, not a place in `specs`.
        `entry` is the dotted name of the rank's generator function, such as "stress.rank:run_rank".
        Raises LaunchError when the machine or the cluster has no room for them.
        """
        ...

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        """The ranks that ended since the last call, in rank order; waits at most `timeout_s` for one."""
        ...

    def stop(self) -> None:
        """Ends all ranks that were started at once; no rank is alive afterwards. Idempotent."""
        ...

    def close(self) -> None:
        """`stop`, and gives back all that was kept from arm to arm."""
        ...

    def pids(self) -> dict[int, int]:
        """Process id by rank, as far as they are known by now."""
        ...


def make_launcher(name: str, config: Any, **options: Any) -> Launcher:
    """The launcher called `name`; its library is imported here and not before.

    `config` needs `layout.device`, `layout.placement` and `deadlines`. Options: `exchange_timeout_s` (local,
    ray: how long a rank waits for its peers at one exchange) and `placement_timeout_s` (ray) instead of the
    configuration's, `address` (ray: the cluster to join).
    Raises ValueError for a name that does not exist.
    """
    device, deadlines = config.layout.device, config.deadlines
    if name == "inline":
        from stress.launch.inline import InlineLauncher

        return InlineLauncher(**options)
    if name == "local":
        from stress.launch.local import LocalLauncher

        return LocalLauncher(**{"exchange_timeout_s": deadlines.exchange_s, **options})
    if name == "ray":
        from stress.launch.ray import RayLauncher

        waits_s = {"exchange_timeout_s": deadlines.exchange_s, "placement_timeout_s": deadlines.placement_s}
        return RayLauncher(device=device, wanted=config.layout.placement, **{**waits_s, **options})
    raise ValueError(f"launcher: there is no '{name}'; use one of {', '.join(LAUNCHERS)}")
