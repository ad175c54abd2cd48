"""The driver of the Ray test, run as a script: one cluster, three arms, then it waits to be killed.

Prints one JSON line an arm. The last arm runs for ever; its line holds the pids of its ranks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "multi"))

from launch_ranks import launch_config, rank_specs

from stress.launch.contract import make_launcher

ENTRY = "launch_ranks:echo_rank"


def run_arm(launcher, config, run_dir: str, arm: str) -> dict:
    """The outcomes of one arm, the pids it had, and which of them outlived `stop`."""
    begun_s = time.monotonic()
    launcher.start(rank_specs(config, run_dir, arm), ENTRY)
    pids = launcher.pids()
    outcomes = {}
    while len(outcomes) < config.layout.tp_size:
        for outcome in launcher.poll(1.0):
            outcomes[outcome.rank] = outcome
    launcher.stop()
    return {
        "arm": arm,
        "seconds": time.monotonic() - begun_s,
        "pids": pids,
        "alive": [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()],
        "lost": [outcomes[rank].lost for rank in sorted(outcomes)],
        "results": [
            outcome.result and [outcome.result.status, outcome.result.digest, outcome.result.digest_partial]
            for _, outcome in sorted(outcomes.items())
        ],
    }


def main(run_dir: str) -> None:
    launcher = make_launcher("ray", launch_config(2))
    whole = run_arm(launcher, launch_config(2, rounds=9, bytes=3000), run_dir, "whole")
    print(json.dumps(whole), flush=True)
    print(json.dumps(run_arm(launcher, launch_config(2, rounds=6, kill=1), run_dir, "killed")), flush=True)
    launcher.start(rank_specs(launch_config(2, rounds=10**9, sleep_s=0.01), run_dir, "endless"), ENTRY)
    print(json.dumps({"arm": "endless", "pids": launcher.pids()}), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1])
