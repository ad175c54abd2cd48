"""Run as a script, with a tree's root, a version and cases: for each one rank of vllm-scheduler, as one JSON document.

The cases are a JSON object: name -> overrides. The injections are off but for those that a case names.
"""

import json
import sys

from driven_rank import run_rank

NONE = ("late_loads", "late_stores", "twice_stores", "failed_loads")


def main(root: str, version: str, cases: str) -> dict:
    return {name: run(root, version, *overrides) for name, overrides in json.loads(cases).items()}


def run(root: str, version: str, *overrides: str) -> dict:
    off = [f"injections.{name}=0" for name in NONE]
    result, told = run_rank("vllm-scheduler", root, version, "check.require=[]", *off, *overrides)
    first, asserted, error = result.first_finding, result.first_assert, result.first_error
    return told | {
        "messages": [finding.message for finding in result.kept],
        "first": None if first is None else [first.rule, first.operation, first.message],
        "assert": None if asserted is None else [asserted.operation, asserted.where, asserted.message],
        "error": None if error is None else [error.operation, error.kind, error.message],
        "operations": result.operations,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
