"""The driver of the Ray test, run as a script: one cluster, six starts of arms, then it waits to be killed.

Prints one JSON line a start. The last arm runs for ever; its line holds the pids of its ranks.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "multi"))

from launch_ranks import launch_config, rank_specs

from stress.config import load_config
from stress.launch.contract import make_launcher
from stress.result import RankSpec

ENTRY = "launch_ranks:echo_rank"
FEW = "workload.requests=100"


def run_arm(launcher, specs: list[RankSpec], entry: str = ENTRY) -> dict:
    """The outcomes of one arm, the pids it had, and which of them outlived `stop`."""
    begun_s = time.monotonic()
    launcher.start(specs, entry)
    pids = launcher.pids()
    outcomes = {}
    while len(outcomes) < len(specs):
        for outcome in launcher.poll(1.0):
            outcomes[outcome.rank] = outcome
    launcher.stop()
    return {
        "arm": specs[0].arm,
        "seconds": time.monotonic() - begun_s,
        "pids": pids,
        "alive": [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()],
        "lost": [outcomes[rank].lost for rank in sorted(outcomes)],
        "results": [
            outcome.result and [outcome.result.status, outcome.result.digest, outcome.result.digest_partial]
            for _, outcome in sorted(outcomes.items())
        ],
    }


def smoke_specs(run_dir: str) -> list[RankSpec]:
    """The patched arm of the shipped smoke configuration, with few requests."""
    config = load_config("smoke", [FEW])
    return [
        RankSpec(
            config=config.to_dict(), arm="patched", rank=rank, ranks=2, seed=config.seed, run_dir=run_dir
        )
        for rank in range(2)
    ]


def side_by_side(run_dir: str, **test: object) -> list[RankSpec]:
    """Two arms at once, on ranks 0 and 2, and 3 and 4."""
    config = launch_config(5, **test)
    return [
        RankSpec(config=config.to_dict(), arm=arm, rank=rank, index=index, ranks=2, seed=1, run_dir=run_dir)
        for arm, ranks in (("beside", (0, 2)), ("dying", (3, 4)))
        for index, rank in enumerate(ranks)
    ]


def main(run_dir: str) -> None:
    launcher = make_launcher("ray", launch_config(2))
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def tell(line: dict) -> None:
        print(json.dumps(line), flush=True)

    tell(run_arm(launcher, rank_specs(launch_config(2, rounds=9, bytes=3000), run_dir, "whole")))
    tell(run_arm(launcher, rank_specs(launch_config(2, rounds=6, kill=1), run_dir, "killed")))
    tell(run_arm(launcher, smoke_specs(run_dir), "stress.rank:run_rank"))
    ours = signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    stillborn = rank_specs(launch_config(2, rounds=4, stillborn=1), run_dir, "stillborn")
    tell({**run_arm(launcher, stillborn, "launch_ranks:absent_rank"), "sigterm_is_ours": ours})
    tell(run_arm(launcher, side_by_side(run_dir, rounds=9, kill=4)))
    launcher.start(rank_specs(launch_config(2, rounds=10**9, sleep_s=0.2), run_dir, "endless"), ENTRY)
    tell({"arm": "endless", "pids": launcher.pids()})
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1])
