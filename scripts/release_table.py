"""The table of docs/sglang.md: what SGLang's own assertions and this project's rules say, release by scenario.

    python scripts/release_table.py [--releases 0.5.20,0.5.21,0.5.22,0.5.23] > table.md

Each cell is a run of `smoke` (150 requests and no forks, 2 ranks, local launcher) on the release's own allocator, cache
and linker wrapper. Needs the extra `sglang`; trees are fetched into the cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

RING_16 = ["pool.swa_ring=true", "pool.page_size=16", "pool.full_pages=3200", "pool.swa_pages=320"]
SCENARIOS = {
    "no linker": ("", ["linker.enabled=false"]),
    "linker restores SWA": ("", ["pool.unified_kv=false", "pool.swa_pages=80"]),
    "linker skips SWA": ("", []),
    "ring, window within a page": ("", [*RING_16, "pool.window_tokens=16"]),
    "ring, window of three pages": ("", [*RING_16, "pool.window_tokens=48"]),
    "skips SWA, no-cursor": ("+no-cursor", []),
    "skips SWA, no-cursor+filter": ("+no-cursor+filter", []),
    "ring, no-ring-guard": ("+no-ring-guard", [*RING_16, "pool.window_tokens=16"]),
}


def cell(release: str, edits: str, overrides: list[str]) -> tuple[str, str]:
    """(their asserts, our findings) of one run, in words."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "stress",
            "run",
            "smoke",
            "--arm",
            "patched",
            "--launcher",
            "local",
            "--json",
        ]
        command += ["--out", str(Path(folder) / "run")]
        settings = [
            f"arms.patched.target=sglang=={release}{edits}",
            "workload.requests=150",
            "workload.fork_rate=0",
            "workload.cancel_rate=0.05",
            "serving.chunk_tokens=1024",
            "pool.swa_pages=28",
            "check.require=[]",
        ]
        for setting in [*settings, *overrides]:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.stdout:
            return "not run", done.stderr.strip().splitlines()[-1].removeprefix("kvstress: ")
    ranks = json.loads(done.stdout)["arms"]["patched"]["ranks"]
    asserted = [rank["first_assert"] for rank in ranks if rank["first_assert"]]
    rules: dict[str, int] = {}
    for rank in ranks:
        for rule, count in rank["findings"].items():
            rules[rule] = rules.get(rule, 0) + count
    errors = sum(rank["errors"] for rank in ranks)
    theirs = f"{len(asserted)} of {len(ranks)}, {asserted[0]['where']}" if asserted else "none"
    ours = ", ".join(
        f"{rule} x{count}" for rule, count in sorted(rules.items(), key=lambda item: int(item[0][1:]))
    )
    return theirs, (ours or "none") + (f"; {errors} errors" if errors else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", default="0.5.20,0.5.21,0.5.22,0.5.23")
    arguments = parser.parse_args()
    print("| scenario | release | their assertion, ranks and place | findings |")
    print("|---|---|---|---|")
    for name, (edits, overrides) in SCENARIOS.items():
        for release in arguments.releases.split(","):
            theirs, ours = cell(release, edits, overrides)
            print(f"| {name} | {release} | {theirs} | {ours} |", flush=True)


if __name__ == "__main__":
    main()
