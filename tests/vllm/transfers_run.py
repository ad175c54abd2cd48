"""Run as a script, with a tree's root, a version and cases: for each one rank of vllm-scheduler, as one JSON document.

The cases are a JSON object: name -> overrides. The injections are off but for those that a case names.
"""

import json
import sys

from stress.config import load_config
from stress.matrix.drive import drive

NONE = ("late_loads", "late_stores", "twice_stores", "failed_loads")


def main(root: str, version: str, cases: str) -> dict:
    return {name: run(root, version, *overrides) for name, overrides in json.loads(cases).items()}


def run(root: str, version: str, *overrides: str) -> dict:
    target = f"arms.v0330.target=vllm-scheduler=={version}"
    off = [f"injections.{name}=0" for name in NONE]
    config = load_config("vllm-scheduler", [target, "check.require=[]", *off, *overrides])
    (result,) = drive(config, "v0330", lambda rank: lambda line: None, root)
    first, asserted, error = result.first_finding, result.first_assert, result.first_error
    return {
        "status": result.status,
        "crashed": result.checker_crashed,
        "errors": result.errors,
        "digest": result.digest,
        "ended": result.requests_finished + result.requests_cancelled,
        "started": result.requests_started,
        "findings": result.findings,
        "messages": [finding.message for finding in result.kept],
        "first": None if first is None else [first.rule, first.operation, first.message],
        "assert": None if asserted is None else [asserted.operation, asserted.where, asserted.message],
        "error": None if error is None else [error.operation, error.kind, error.message],
        "operations": result.operations,
        "marks": result.marks,
        "watched": result.rules_watched,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
