"""Which rules are watched on which engine, and what short runs of it reached: the README's tables, from what runs say.

    python scripts/engine_table.py

Each engine serves some hundred requests of its configs by `kvstress run ... --json`, also with transfers that fail.
`rules_watched` makes the first table, `coverage.reached` the second. A release that is not in the cache is fetched.
Exit 3: one can't be had here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import NamedTuple

from stress.check.rules import RULE_IDS
from stress.target import TargetUnavailable, add_target

ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1")
FAILING = (*ONE_RANK, 'linker.faults=[{kind="failed", after=3}]')


class Run(NamedTuple):
    """A config on one arm, with what is set."""

    config: str
    arm: str
    target: str
    overrides: tuple[str, ...] = ONE_RANK


# A column's runs, by its title.
ENGINES = {
    "reference": (
        Run("smoke", "patched", "reference"),
        Run("smoke", "patched", "reference", FAILING),
        Run("tp", "reference", "reference", ()),
    ),
    "reference, SWA ring": (
        Run("ring", "reference", "reference"),
        Run("ring", "reference", "reference", FAILING),
    ),
    "SGLang 0.5.23": (
        Run("smoke", "patched", "sglang==0.5.23"),
        Run("smoke", "patched", "sglang==0.5.23", FAILING),
    ),
    "vLLM 0.33.0": (Run("vllm-offload", "new", "vllm==0.33.0"),),
    "vLLM 0.33.0, its scheduler": (Run("vllm-scheduler", "v0330", "vllm-scheduler==0.33.0"),),
    "LMCache 0.5.6": (Run("lmcache", "lmcache", "lmcache==0.5.6"),),
}
# What is printed -> the mark that says that a run has done it.
FEATURES = {
    "prompts in chunks that cross a page's edge": "chunk_crossed_page",
    "drafts, whose rejected tail is given back": "spec_tail_returned",
    "a window that moves on and gives pages back": "swa_released_out_of_window",
    "cached prefixes evicted": "full_evicted",
    "their window part evicted alone": "swa_evicted",
    "a cached prefix forked inside a node": "node_split",
    "requests preempted and served again": "retracted",
    "requests cancelled": "cancelled",
    "loads from a store": "load_back",
    "loads that bring no window part": "linker_loaded_without_swa",
    "a window part that comes back under a lock": "tombstone_recovered",
    "stores": "offloaded",
    "loads that fail": "load_failed",
    "stores that fail": "offload_failed",
}
SHORT = ("workload.requests=400", "check.require=[]")


def said(run: Run) -> dict:
    """The verdict of a short run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "stress", "run", run.config, "--arm", run.arm, "--json"]
        launcher = "inline" if run.target == "reference" else "local"
        command += ["--launcher", launcher, "--out", f"{folder}/run"]
        for override in (f"arms.{run.arm}.target={run.target}", *SHORT, *run.overrides):
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}") from error


def of_engine(runs: tuple[Run, ...]) -> tuple[set[str], set[str]]:
    """The rules that any of the runs watched, and the marks that any reached."""
    rules, marks = set(), set()
    for run in runs:
        if run.target != "reference":
            add_target(run.target)
        verdict = said(run)
        rules |= set(verdict["arms"][run.arm]["rules_watched"])
        marks |= set(verdict["coverage"]["reached"])
    return rules, marks


def lines_of(title: str, engines: list[str], rows: dict[str, list[bool]]) -> list[str]:
    """A table, a row each; what does not hold is an empty cell."""
    lines = [f"| {title} | {' | '.join(engines)} |", f"|-{'|-' * len(engines)}|"]
    for row, cells in rows.items():
        lines.append(f"| {row} | {' | '.join('yes' if cell else '' for cell in cells)} |")
    return lines


def main() -> int:
    engines = list(ENGINES)
    rules, marks = [], []
    try:
        for runs in ENGINES.values():
            of_rules, of_marks = of_engine(runs)
            rules.append(of_rules)
            marks.append(of_marks)
    except TargetUnavailable as error:
        print(f"engine_table: {error}", file=sys.stderr)
        return 3
    watched = {rule: [rule in some for some in rules] for rule in RULE_IDS}
    reached = {feature: [mark in some for some in marks] for feature, mark in FEATURES.items()}
    print("\n".join(lines_of("rule", engines, watched)), end="\n\n")
    print("\n".join(lines_of("reached by a short run", engines, reached)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
