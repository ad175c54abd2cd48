"""The sum over seeds as a function of their verdict documents."""

import io
from pathlib import Path

from verdict_ranks import ASSERTED, ERROR, clean, rank, verdict_of

from stress.compare import compare_arms
from stress.seeds import NOT_RUN, Pair, entry_of, seeds_document, unmade
from stress.seeds_report import print_seeds


def test_a_base_that_failed_by_errors_alone_reproduces_nothing():
    pair = Pair(base="unpatched", test="patched")

    def entry(*base):
        document = verdict_of(*clean(), unpatched=base, arms=("unpatched", "patched"))
        document["compare"] = compare_arms(document, "unpatched", "patched")
        return entry_of(1, "seed-1", document, pair)

    erred = entry(rank("unpatched", 0, "errored", errors=1, first_error=ERROR), rank("unpatched", 1))
    assert (erred["outcome"], erred["reproduced"], erred["fixed"]) == ("unknown", None, True)
    assert erred["doubts"] == [
        "The base unpatched failed by errors alone: no rank has a finding or an assert."
    ]
    shown = entry(rank("unpatched", 0, "asserted", **ASSERTED), rank("unpatched", 1))
    assert (shown["outcome"], shown["reproduced"], shown["doubts"]) == ("reproduced_and_fixed", True, [])
    document = seeds_document("smoke", "local", ["unpatched", "patched"], [erred, shown], pair)
    assert "test patched: unknown (reproduced on 1 of 1 seed)\n" in text_of(document)
    assert document["compare"]["outcome"] == "unknown"
    assert (document["k_of_n"]["reproduced"]["k"], document["k_of_n"]["reproduced"]["n"]) == (1, 1)
    assert document["reasons"][-1].startswith("Seed 1: The base unpatched failed by errors alone")
    nothing = seeds_document("smoke", "local", ["unpatched", "patched"], [unmade(1, NOT_RUN, pair)], pair)
    assert nothing["k_of_n"]["fisher_p"] == 1.0
    assert "test patched: unknown\n" in text_of(nothing)


def text_of(document):
    stream = io.StringIO()
    print_seeds(document, Path("nowhere"), stream)
    return stream.getvalue()
