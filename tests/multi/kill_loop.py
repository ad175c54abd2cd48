"""Kills one rank of a smoke run at a seeded moment, again and again, and says what the run made of it.

    python tests/multi/kill_loop.py [--kills 100] [--ranks 2] [--seed 1]

A moment is a fraction of the time that the ranks of an undisturbed run took, from the victim's first line on, so that
the formation of the group, the work, the last exchange and the time after the result are all met. What must hold
whenever it strikes: no pass where a rank has left no result; the victim is `lost` and named, the others `finished`;
what a finished rank has written is what the verdict says of it; no process is left. Exit 0, or 1 where it did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
from processes import session_of, still_alive

from stress.record import RankTail, RunDirectory

ROOT = Path(__file__).parents[2]
ARM = "patched"
RUN_S_MAX = 120.0
GONE_S_MAX = 15.0
SPREAD = 1.1  # moments reach this far beyond the undisturbed duration


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One run and the signal that met it. `wrong` is empty where everything held."""

    number: int
    rank: int
    after_s: float  # from the victim's first line
    struck: bool  # the victim died before it had a result
    exit_code: int
    verdict: str
    wrong: list[str]


def draw(seed: int, name: str, below: int) -> int:
    """An integer in [0, below), the same for a seed and a name."""
    return int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big") % below


@contextlib.contextmanager
def smoke_run(out: Path, ranks: int, *more: str) -> Iterator[subprocess.Popen]:
    """`kvstress run smoke` of one arm that passes when nobody disturbs it, in a session of its own."""
    layout = [part for key in ("tp_size", "dp_size") for part in ("--set", f"layout.{key}={ranks}")]
    # Which marks a workload reaches is not asked here; without them an undisturbed run of any size passes.
    marks = ("--set", "check.require=[]")
    command = [sys.executable, "-m", "stress", "run", "smoke", "--arm", ARM, "--launcher", "local"]
    with subprocess.Popen(
        [*command, *layout, *marks, *more, "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def await_line(process: subprocess.Popen, tail: RankTail, what: str) -> None:
    """Returns once the file holds its `started` or its `result`. Raises when the run ends without it."""
    deadline_s = time.monotonic() + RUN_S_MAX
    while getattr(tail.read(), what) is None:
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"{tail.path.name}: no line '{what}': {process.stderr.read()}")
        time.sleep(0.005)


def undisturbed_s(folder: Path, ranks: int) -> float:
    """Seconds from a rank's first line to its last, in a run that nobody kills. Raises where it fails."""
    out = folder / "undisturbed"
    with smoke_run(out, ranks) as process:
        tail = rank_tail(out, 0)
        await_line(process, tail, "started")
        begun_s = time.monotonic()
        await_line(process, tail, "result")
        took_s = time.monotonic() - begun_s
        _, errors = process.communicate(timeout=RUN_S_MAX)
        if process.returncode != 0:
            raise RuntimeError(f"the undisturbed run ended with {process.returncode}: {errors}")
    return took_s


def rank_tail(out: Path, rank: int) -> RankTail:
    return RankTail(out / "ranks" / f"{ARM}-{rank}.jsonl")


def kill_once(out: Path, number: int, *, ranks: int, rank: int, after_s: float) -> Kill:
    """Runs smoke, kills `rank` after `after_s`, and checks what came of it."""
    with smoke_run(out, ranks) as process:
        tail = rank_tail(out, rank)
        await_line(process, tail, "started")
        pid = tail.started.pid
        time.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):  # it has ended: the kill comes too late
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
        everyone = session_of(process.pid)
        try:
            _, errors = process.communicate(timeout=RUN_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
        orphans = still_alive(everyone, GONE_S_MAX) or session_of(process.pid)
        exit_code = process.returncode
    document = RunDirectory.open(out).read_verdict()
    tails = [rank_tail(out, peer).read() for peer in range(ranks)]
    struck = tails[rank].result is None
    wrong = [*_wrong(document, tails, exit_code, victim=rank, struck=struck)]
    if orphans:
        wrong.append(f"processes left: {orphans}")
    if "Traceback" in errors:
        wrong.append(f"a traceback on stderr: {errors[-300:]}")
    return Kill(
        number=number,
        rank=rank,
        after_s=round(after_s, 3),
        struck=struck,
        exit_code=exit_code,
        verdict=document["verdict"],
        wrong=wrong,
    )


def _wrong(
    document: dict, tails: list[RankTail], exit_code: int, *, victim: int, struck: bool
) -> Iterator[str]:
    """What does not hold. A rank whose file has a result counts as finished, also where it was killed later."""
    verdict, ranks = document["verdict"], document["arms"][ARM]["ranks"]
    wanted = ("unknown", 3) if struck else ("pass", 0)
    if (verdict, exit_code) != wanted:
        yield f"verdict {verdict}, exit {exit_code}, not {wanted}: {document['reasons']}"
    if [rank["rank"] for rank in ranks] != list(range(len(tails))):
        yield "the ranks in the verdict are not all ranks in order"
        return
    if struck and not any(f"rank {victim} lost: killed by SIGKILL" in why for why in document["reasons"]):
        yield f"the reasons don't name rank {victim}: {document['reasons']}"
    for rank, tail in zip(ranks, tails, strict=True):
        status = "lost" if struck and rank["rank"] == victim else "finished"
        if rank["status"] != status:
            yield f"rank {rank['rank']} is {rank['status']}, not {status}"
        if tail.unreadable:
            yield f"rank {rank['rank']} has {tail.unreadable} unreadable lines"
        if rank["status"] != "finished":
            continue
        if tail.result is None:
            yield f"rank {rank['rank']} is finished and left no result in its file"
        elif _told(rank) != _told(msgspec.to_builtins(tail.result)):
            yield f"rank {rank['rank']}: its file and the verdict differ"


def _told(rank: dict) -> tuple:
    names = ("requests_finished", "requests_cancelled", "asserts", "errors", "digest", "findings")
    return tuple(rank[name] for name in names)


def kill_loop(folder: Path, *, kills: int, ranks: int, seed: int) -> Iterator[Kill]:
    """One Kill after another, each of a run below `folder`."""
    span_us = round(SPREAD * undisturbed_s(folder, ranks) * 1_000_000)
    for number in range(kills):
        rank = draw(seed, f"victim{number}", ranks)
        after_s = draw(seed, f"moment{number}", span_us) / 1_000_000
        yield kill_once(folder / str(number), number, ranks=ranks, rank=rank, after_s=after_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kill in kill_loop(Path(folder), kills=given.kills, ranks=given.ranks, seed=given.seed):
            counts["struck" if kill.struck else "came after the result"] += 1
            counts[f"verdict {kill.verdict}"] += 1
            counts["wrong"] += bool(kill.wrong)
            for line in kill.wrong:
                print(
                    f"kill {kill.number}, rank {kill.rank} after {kill.after_s:g} s: {line}",
                    flush=True,
                )
    print(f"{given.kills} kills: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
