"""Small ranks for the launchers' tests: they exchange bytes, and fail on demand.

Their configuration is `spec.config["test"]`: `rounds`, `bytes` (payload of an arm's first rank; that of index i
sends (i + 1) times as much), and one fault by name: `{"kill": rank}`, `{"raise": rank}`, `{"hang": rank}`,
`{"freeze": rank}` at round `at`, or `{"absent": rank}`, `{"stillborn": rank}` before the first, with
`absent_rank`. Their digest is a hash of all that they heard, in order.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Generator

import msgspec

from stress.config_schema import Arm, Arms, Deadlines, Layout
from stress.result import Finding, FindingLine, Heartbeat, RankLine, RankResult, RankSpec, ResultLine, Started


class LaunchConfig(msgspec.Struct, frozen=True):
    """As much of a configuration as the coordinator reads, and what the ranks of this module do."""

    layout: Layout
    test: dict
    seed: int = 1
    deadlines: Deadlines = Deadlines()
    arms: Arms = Arms()

    def to_dict(self) -> dict:
        return msgspec.to_builtins(self)


def launch_config(ranks: int, **test: object) -> LaunchConfig:
    return LaunchConfig(layout=Layout(tp_size=ranks, dp_size=ranks, device="cpu"), test=test)


def parallel_config(ranks: int, arms: dict[str, str], **test: object) -> LaunchConfig:
    """Arms in parallel on a layout of so many ranks: the ranks of each by its name."""
    named = {name: Arm(target="reference", ranks=text) for name, text in arms.items()}
    return msgspec.structs.replace(launch_config(ranks, **test), arms=Arms(mode="parallel", named=named))


def rank_specs(config: LaunchConfig, run_dir: str | None = None, arm: str = "patched") -> list[RankSpec]:
    ranks = config.layout.tp_size
    return [
        RankSpec(config=config.to_dict(), arm=arm, rank=rank, ranks=ranks, seed=1, run_dir=run_dir)
        for rank in range(ranks)
    ]


def payload(spec: RankSpec, turn: int) -> bytes:
    """Bytes of this rank at this turn; the length differs from turn to turn and is sometimes zero."""
    size = spec.config["test"].get("bytes", 100) * (spec.index + 1) * ((turn * 7) % 5)
    return hashlib.blake2b(f"{spec.index}/{turn}".encode()).digest() * (size // 64)


def echo_rank(spec: RankSpec, emit: Callable[[RankLine], None]) -> Generator[bytes, list[bytes], RankResult]:
    """Exchanges `rounds` times and returns the digest of what it heard."""
    test = spec.config["test"]
    digest = hashlib.blake2b(digest_size=16)
    emit(Started(arm=spec.arm, rank=spec.rank, pid=-1, device="twice", target="twice"))
    for turn in range(test["rounds"]):
        if turn == test.get("at", 2):
            _fail(spec, emit)
        heard = yield payload(spec, turn)
        for other in heard:
            digest.update(len(other).to_bytes(8, "little") + other)
        emit(_heartbeat(turn))
        time.sleep(test.get("sleep_s", 0))
    result = RankResult(
        arm=spec.arm,
        rank=spec.rank,
        dp_rank=spec.index,
        attn_tp_rank=0,
        device=spec.device,
        pid=os.getpid(),
        status="finished",
        requests_finished=test["rounds"],
        virtual_us=test["rounds"] * 1000,
        digest=digest.hexdigest(),
    )
    emit(ResultLine(result=result))
    return result


def absent_rank(
    spec: RankSpec, emit: Callable[[RankLine], None]
) -> Generator[bytes, list[bytes], RankResult]:
    """An `echo_rank`, but for the rank that fails or dies before it has begun."""
    if spec.rank == spec.config["test"].get("absent"):
        raise RuntimeError("this rank does not want to")
    if spec.rank == spec.config["test"].get("stillborn"):
        os.kill(os.getpid(), signal.SIGKILL)
    return echo_rank(spec, emit)


def _heartbeat(turn: int) -> Heartbeat:
    return Heartbeat(
        virtual_us=(turn + 1) * 1000,
        operations=turn,
        requests_finished=turn + 1,
        requests_cancelled=0,
        running=1,
        findings=9,
    )


def _fail(spec: RankSpec, emit: Callable[[RankLine], None]) -> None:
    test = spec.config["test"]
    if spec.rank not in (test.get("kill"), test.get("raise"), test.get("hang"), test.get("freeze")):
        return
    finding = Finding(rule="I1", pool="swa", operation=2, noticed=2, virtual_us=2000, page=0, message="m")
    emit(FindingLine(finding=finding))
    if spec.rank == test.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if spec.rank == test.get("raise"):
        raise RuntimeError("the test rank's own trouble")
    if spec.rank == test.get("freeze"):
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)
