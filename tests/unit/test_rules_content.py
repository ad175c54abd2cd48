"""Controls of I16 and I21: what each must report, in words, and what it must not; a key map that keeps first values."""

import numpy as np
from rule_bench import Bench

from stress.check.event import EventKind
from stress.check.key_map import KeyMap
from stress.check.slot_label import NOTHING, label_of


def content(bench, found, expected, forgotten, method="forward", slots=1):
    bench.number += 1
    peers = [found, expected, forgotten]
    bench.tell(
        EventKind.CONTENT, "full", [slots, 17 * 4], peers, rid=9, method=method, operation_kind="commit"
    )
    bench.settle()


def keys(bench, rid, names, identities):
    bench.number += 1
    bench.tell(
        EventKind.KEYS, "full", names, identities, rid=rid, method="the cache", operation_kind="finish"
    )
    bench.settle()


def test_i16_names_both_identities():
    bench = Bench()
    content(bench, label_of(4, 64), label_of(9, 128), 0)
    finding = bench.only("I16")
    assert (finding.operation, finding.page, finding.pool) == (1, 17, "full")
    assert finding.message == (
        "page 17 holds position 64 of request 4, request 9 reads it as position 128 (commit of request 9)"
    )


def test_i16_says_what_was_left_what_was_never_written_and_what_is_anothers():
    for found, forgotten, method, words in (
        (
            label_of(4, 128),
            1,
            "publish",
            "4, left there before the page was lent anew, request 9 publishes it",
        ),
        (NOTHING, 1, "forward", "page 17 holds nothing, request 9 reads it as position 128"),
        (label_of(4, 128), 0, "forward", "of request 4, under another prefix or namespace, request 9 reads"),
        (label_of(4, 0), 0, "load", "page 17 gets position 0 of request 4 from the store, request 9 asked"),
        (label_of(4, 0), 0, "store", "holds position 0 of request 4, the store takes it for position 128"),
        (label_of(4, 0), 0, "sweep", "the cache keeps it as position 128 of request 9"),
    ):
        bench = Bench()
        content(bench, found, label_of(9, 128), forgotten, method)
        assert words in bench.only("I16").message


def test_i16_counts_pages_and_says_nothing_where_none_differs():
    bench = Bench()
    content(bench, NOTHING, label_of(9, 0), 1, slots=0)
    bench.clean()
    content(bench, NOTHING, label_of(9, 0), 1, slots=3)
    assert bench.ledger.findings == {"I16": 3}
    without = Bench(rules=["I2"])
    content(without, NOTHING, label_of(9, 0), 1, slots=3)
    without.clean()


def test_i21_reports_a_key_that_names_two_prefixes():
    bench = Bench()
    keys(bench, 4, [7, 8, 9], [7, 8, 9])
    keys(bench, 5, [7, 8, 9], [7, 8, 9])
    bench.clean()
    keys(bench, 6, [7, 8, 10], [107, 108, 10])
    finding = bench.only("I21")
    assert bench.ledger.findings == {"I21": 2} and finding.operation == 3
    assert finding.message == (
        "key 7, by which the cache (finish of request 6) finds what request 6 published, already stands for "
        "another prefix or namespace (2 such keys)"
    )
    without = Bench(rules=["I16"])
    keys(without, 6, [7, 7], [107, 108])
    without.clean()


def test_i21_sees_a_hash_that_was_cut_and_knows_no_pool_or_number():
    """Keys of 8 bits under identities of 63: the first collision is found, also inside one insert; 0 is a key."""
    bench = Bench()
    identities = np.arange(1, 400, dtype=np.int64) * 0x9E3779B97F4A7C1 & (2**62 - 1)
    cut = identities & 0xFF
    first = len(np.unique(cut))
    assert first < len(cut)
    keys(bench, 4, [0, -5], [3, 4])
    keys(bench, 5, cut, identities)
    assert bench.only("I21").operation == 2
    assert bench.ledger.findings["I21"] >= len(cut) - first


def test_the_key_map_keeps_first_values_as_a_dict_does():
    known, model = KeyMap(), {}
    words = np.random.default_rng(7).integers(-50_000, 50_000, size=(40, 300))
    for turn, names in enumerate(words):
        names = np.unique(names)
        values = names * 3 + turn
        held = known.add(names, values)
        assert held.tolist() == [
            model.setdefault(k, v) for k, v in zip(names.tolist(), values.tolist(), strict=True)
        ]
    assert len(known) == len(model)
