"""What named faults are on a real project's engine: the same class of bugs under the same name, told for that engine.

A fault of the reference has a form where what it does wrong exists: vLLM has no mapping between pools, no tree with
locks and no ring, and one scheduler decides for all ranks of a group. What is in no table has no meaning there.
Imports the catalogue alone: a configuration is checked against it.
"""

from __future__ import annotations

from stress.fault_catalogue import FAULTS, FaultFacts

_VLLM: dict[str, FaultFacts] = {
    "F05": FaultFacts(
        "a block that is lent anew is still found by the key of what was in it",
        ("vllm#4761",),
        "vllm-small",
        ("I17",),
        project="vllm",
    ),
    "F11": FaultFacts(
        "a window's frontier stands one block too far",
        ("sglang#22470", "sglang#29860"),
        "vllm-small",
        ("I9",),
        project="vllm",
    ),
    "F13": FaultFacts(
        "a release goes by what was computed and leaves out the slots ahead for drafts",
        ("sglang#31616", "sglang#13826", "sglang-jax#1147"),
        "vllm-small",
        ("I12",),
        project="vllm",
    ),
    "F14": FaultFacts(
        "an abort between match and batch leaves the request's blocks",
        ("sglang#12693", "sglang#9817"),
        "vllm-small",
        ("I20",),
        project="vllm",
    ),
    "F15": FaultFacts(
        "what a load is to bring is found by others before it has come",
        ("sglang release_request TODO", "sglang#37592"),
        "vllm-loads",
        ("I17",),
        project="vllm",
    ),
    "F16": FaultFacts(
        "a load that came short counts as whole",
        ("sglang#38352", "dynamo#15079"),
        "vllm-loads",
        ("I17",),
        project="vllm",
    ),
    "F17": FaultFacts(
        "a preempted or ended request's blocks go while a store still reads them",
        ("vllm#52360", "sglang#31427", "TRT-LLM#12542"),
        "vllm-loads",
        ("I15",),
        project="vllm",
    ),
    "F22": FaultFacts(
        "the key of a block does not name its salt",
        ("vllm#44701", "sglang#24638", "LMCache#4783"),
        "vllm-small",
        ("I16",),
        needs=("workload.namespaces=2",),
        project="vllm",
    ),
    "F23": FaultFacts(
        "an allocation that fails in the second group keeps what it took for the first",
        ("kvcached#364",),
        "vllm-small",
        ("I12",),
        project="vllm",
    ),
}
_FORMS = {"vllm": _VLLM}


def facts_of(fault: str, project: str) -> FaultFacts | None:
    """What `fault` is on an engine of `project`; None: it has no meaning there."""
    facts = FAULTS[fault]
    return facts if facts.project == project else _FORMS.get(project, {}).get(fault)


def faults_of(project: str) -> list[str]:
    """The faults that an engine of `project` can have, in the order of their numbers."""
    return [fault for fault in FAULTS if facts_of(fault, project) is not None]
