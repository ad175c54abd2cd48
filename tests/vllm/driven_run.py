"""Run as a script, with a tree's root, a version, a policy and overrides: one rank of vllm-priority, as JSON."""

import json
import sys

from stress.config import load_config
from stress.matrix.drive import drive


def main(root: str, version: str, policy: str, *overrides: str) -> dict:
    target = f"arms.v0330.target=vllm-scheduler=={version}"
    config = load_config("vllm-priority", [target, f"serving.policy={policy}", *overrides])
    (result,) = drive(config, "v0330", lambda rank: lambda line: None, root)
    first = result.first_finding
    return {
        "status": result.status,
        "crashed": result.checker_crashed,
        "errors": result.errors,
        "digest": result.digest,
        "ended": result.requests_finished + result.requests_cancelled,
        "started": result.requests_started,
        "findings": result.findings,
        "first": None if first is None else [first.rule, first.operation, first.noticed],
        "marks": result.marks,
        "watched": result.rules_watched,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
