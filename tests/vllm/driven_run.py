"""Run as a script, with a tree's root, a version, a policy and overrides: one rank of vllm-priority, as JSON."""

import json
import sys

from driven_rank import run_rank


def main(root: str, version: str, policy: str, *overrides: str) -> dict:
    result, told = run_rank("vllm-priority", root, version, f"serving.policy={policy}", *overrides)
    first = result.first_finding
    return told | {"first": None if first is None else [first.rule, first.operation, first.noticed]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
