"""One rank of vLLM's own scheduler, for the scripts here: what a run of it says, and a bench of its engine."""

from stress.check.shadow import Ledger
from stress.config import load_config
from stress.matrix.drive import drive
from stress.operator import Operator
from stress.probe import Probe


def run_rank(name: str, root: str, version: str, *overrides: str):
    """The result of the configuration's one rank, and what is told of it whatever is asked."""
    config = load_config(name, [f"arms.v0330.target=vllm-scheduler=={version}", *overrides])
    (result,) = drive(config, "v0330", lambda rank: lambda line: None, root)
    return result, {
        "status": result.status,
        "crashed": result.checker_crashed,
        "errors": result.errors,
        "digest": result.digest,
        "ended": result.requests_finished + result.requests_cancelled,
        "started": result.requests_started,
        "findings": result.findings,
        "marks": result.marks,
        "watched": result.rules_watched,
    }


def watched(engine) -> tuple[Operator, Ledger]:
    """The engine under every check."""
    ledger = Ledger(engine.pools, engine.edges)
    probe = Probe(engine, ledger, "full")
    operator = Operator(engine, probe, lambda operation: None, lambda: None, level=3, count_asserts=False)
    return operator, ledger
