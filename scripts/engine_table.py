"""Which rules are watched on which engine: the table of the README, from what short runs say themselves.

    python scripts/engine_table.py

Each engine serves a few requests of a config by `kvstress run ... --json`; its `rules_watched` is what the table has. A
release that is not in the cache is fetched. Exit 3: one can't be had here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

from stress.check.rules import RULE_IDS
from stress.target import TargetUnavailable, add_target

# Title -> config, arm, target, and what else is set.
ENGINES = {
    "reference": ("seed", "patched", "reference", ()),
    "its ring": ("ring", "reference", "reference", ()),
    "SGLang 0.5.23": ("smoke", "patched", "sglang==0.5.23", ()),
    "vLLM 0.33.0": ("vllm-offload", "new", "vllm==0.33.0", ()),
    "its scheduler": ("vllm-priority", "v0330", "vllm-scheduler==0.33.0", ()),
    "LMCache 0.5.6": ("lmcache", "lmcache", "lmcache==0.5.6", ()),
}
SHORT = ("workload.requests=8", "layout.tp_size=1", "layout.dp_size=1", "check.require=[]")


def watched(config: str, arm: str, target: str, overrides: tuple[str, ...]) -> list[str]:
    """The rules that a short run of the arm watched."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "stress",
            "run",
            config,
            "--arm",
            arm,
            "--launcher",
            "local",
            "--json",
        ]
        command += ["--out", f"{folder}/run"]
        for override in (f"arms.{arm}.target={target}", *SHORT, *overrides):
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["arms"][arm]["rules_watched"]
    except (ValueError, KeyError) as error:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}") from error


def table() -> list[str]:
    """The lines, rule by rule; what an engine can't show has an empty cell."""
    by_engine = {}
    for title, (config, arm, target, overrides) in ENGINES.items():
        if target != "reference":
            add_target(target)
        by_engine[title] = set(watched(config, arm, target, overrides))
    lines = [f"| rule | {' | '.join(by_engine)} |", f"|-{'|-' * len(by_engine)}|"]
    for rule in RULE_IDS:
        cells = ["yes" if rule in rules else "" for rules in by_engine.values()]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    try:
        print("\n".join(table()))
    except TargetUnavailable as error:
        print(f"engine_table: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
