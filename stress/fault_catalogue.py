"""The named faults: what each does, the real bugs it stands for, which configuration reaches it, which rule sees it.

A rule sees a fault at the operation at which it first acts. Some can't, by their nature: one that compares at a
boundary, in a sweep, at quiesce or by a deadline sees it at the first check that could; they are `late` here.
Imports nothing: a configuration is checked against it.
"""

from __future__ import annotations

from typing import NamedTuple


class FaultFacts(NamedTuple):
    """`rules`: one of them must fire. `late`: those of them that see it at their next check only.

    `config`: the base configuration whose workload reaches it by itself. `loaded`: whether it has a form on a
    loaded pool. `one_rank`: whether a rank alone can have it. `needs`: what of the base it needs otherwise, as --set
    takes it; its twin gets the same. `project`: whose arms can have it: the reference's, or a release's. What it is
    on another project's, where it means something there: stress.fault_forms.
    """

    title: str
    sources: tuple[str, ...]
    config: str
    rules: tuple[str, ...]
    late: tuple[str, ...] = ()
    loaded: bool = True
    one_rank: bool = True
    needs: tuple[str, ...] = ()
    project: str = "reference"


FAULTS: dict[str, FaultFacts] = {
    "F01": FaultFacts(
        "a segment free does not drop unmapped representatives", ("sglang#38519",), "paged", ("I1",)
    ),
    "F02": FaultFacts("with a ring, frees credit the paged SWA pool", ("sglang#38571",), "ring", ("I3",)),
    "F03": FaultFacts("with a ring, a free leaves the map as it is", ("sglang#38571",), "ring", ("I4",)),
    "F04": FaultFacts(
        "a page free clears one token's entry", ("sglang#27779", "sglang#27789"), "paged", ("I5", "I8")
    ),
    "F05": FaultFacts(
        "an allocation without SWA keeps the entries of recycled pages",
        ("sglang#25805", "sglang#26078"),
        "paged",
        ("I4",),
    ),
    "F06": FaultFacts(
        "a free in a group reads its peers at the flush", ("sglang#36135", "sglang#36646"), "paged", ("I7",)
    ),
    "F07": FaultFacts(
        "a group opened inside a group drops what the outer one has piled",
        ("sglang#36646",),
        "paged",
        ("I7",),
    ),
    "F08": FaultFacts(
        "the FULL side of a page is freed while its peer is live", ("sglang#36723",), "paged", ("I6",)
    ),
    "F09": FaultFacts(
        "the recovery of a tombstone replaces a FULL page that is locked",
        ("sglang#29352",),
        "linker-swa",
        ("I12",),
    ),
    "F10": FaultFacts(
        "a lock skips a tombstone, its unlock does not",
        ("sglang#24972", "sglang#36350", "sglang#27147"),
        "linker-swa",
        ("I11",),
    ),
    "F11": FaultFacts(
        "the window's frontier stands one page too far where a page is wider than the window",
        ("sglang#22470", "sglang#29860"),
        "small-window",
        ("I9", "I10"),
    ),
    "F12": FaultFacts(
        "the insert of an unfinished request forgets what slid out of its window",
        ("sglang#30845", "sglang#36909"),
        "paged",
        ("I10",),
    ),
    "F13": FaultFacts(
        "a reserve for drafts is recorded unaligned",
        ("sglang#31616", "sglang#13826", "sglang-jax#1147"),
        "paged",
        ("I6",),
    ),
    "F14": FaultFacts(
        "an abort between match and batch leaves slot and lock",
        ("sglang#12693", "sglang#9817"),
        "paged",
        ("I20",),
        loaded=False,
    ),
    "F15": FaultFacts(
        "a load that is cancelled before it starts stays in the tree",
        ("sglang release_request TODO", "sglang#37592"),
        "paged",
        ("I17",),
    ),
    "F16": FaultFacts(
        "a short load counts as success on its rank, whatever the others say",
        ("sglang#38352", "dynamo#15079"),
        "tp",
        ("I17", "I18"),
        late=("I18",),
        one_rank=False,
    ),
    "F17": FaultFacts(
        "a page is evicted and lent while a store still reads it",
        ("sglang#31427", "vllm#52360", "TRT-LLM#12542"),
        "linker-swa",
        ("I15",),
    ),
    "F18": FaultFacts(
        "a rank leaves a collective out when its own queue is empty",
        ("sglang#27489",),
        "tp",
        ("I19",),
        late=("I19",),
        one_rank=False,
    ),
    "F19": FaultFacts(
        "a rank loads the longest prefix that it can restore itself, not the longest that its group can",
        ("LMCache#1379",),
        "tp",
        ("I17",),
        one_rank=False,
    ),
    "F20": FaultFacts(
        "transfers are agreed over all ranks instead of the attention-TP group",
        ("sglang#7158",),
        "tp",
        ("I19",),
        late=("I19",),
        loaded=False,
        one_rank=False,
    ),
    "F21": FaultFacts(
        "a counter shrinks by the length of keys and grows by that of values",
        ("sglang#10637",),
        "paged",
        ("I13",),
    ),
    "F22": FaultFacts(
        "the key of a page does not name its namespace",
        ("sglang#24638", "vllm#44701", "LMCache#4783"),
        "paged",
        ("I16", "I21"),
        needs=("workload.namespaces=2",),
    ),
    "F23": FaultFacts(
        "an allocation that fails in the second pool keeps what it took from the first",
        ("kvcached#364",),
        "paged",
        ("I13",),
    ),
    "F24": FaultFacts(
        "a ring row is handed over as it is behind a full prefix hit",
        ("sglang#30339", "ATOM#1423"),
        "ring",
        ("I9", "I16"),
    ),
    "F25": FaultFacts(
        "a client gives a page of the pool up twice",
        ("LMCache#5005",),
        "lmcache",
        ("I3",),
        project="lmcache",
    ),
    "F26": FaultFacts(
        "one batched release names a block twice, and it goes on the free queue twice",
        ("vllm#42571",),
        "vllm-small",
        ("I3",),
        project="vllm",
    ),
    "F27": FaultFacts(
        "new blocks are taken before another group's hit is: one block is in the tables of two groups",
        ("vllm#33775",),
        "vllm-small",
        ("I2",),
        project="vllm",
    ),
    "F28": FaultFacts(
        "slots that are taken back in the step that gave them leave their keys in the prefix map",
        ("vllm#57580", "vllm#43569"),
        "vllm-small",
        ("I17",),
        project="vllm",
    ),
}
