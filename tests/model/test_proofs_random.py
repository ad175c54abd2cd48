"""What a proof accepts no rule would report: random walks, in order and not, by the short way and by the long."""

from __future__ import annotations

import numpy as np
from event_walk import EventWalk
from hypothesis import settings

WALKS = 10 * settings().max_examples  # 400, and 4000 with HYPOTHESIS_PROFILE=thorough
PROVED = {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I12", "I13", "I15"}


def same(walk: EventWalk) -> None:
    """Both ledgers have found the same and stand alike."""
    short, long = walk.short, walk.long
    assert short.crashed == long.crashed == ""
    assert short.findings == long.findings
    assert short.kept == long.kept
    assert short.shadow.causes.known == long.shadow.causes.known
    pairs = [(short.shadow.edges[0], long.shadow.edges[0], ("peer", "holder", "mapped", "doubled"))]
    for name, pool in short.shadow.pools.items():
        numbers = ("lent", "lends", "asked_pages", "orphans", "surplus", "group_open", "tables_named")
        arrays = ("on_loan", "owner", "lent_by", "asked", "orphan", "tables", "extra")
        pairs.append((pool, long.shadow.pools[name], numbers + arrays))
    for one, other, names in pairs:
        for name in names:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for table in ("tables", "rows_gained"):
        mine, theirs = getattr(short.shadow, table), getattr(long.shadow, table)
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[rid], theirs[rid]) for rid in mine), table


def test_short_and_long_way_are_alike() -> None:
    found: set[str] = set()
    for seed in range(WALKS):
        walk = EventWalk(seed, same)
        walk.run(150)
        found |= set(walk.long.findings)
    assert found >= PROVED, "each rule whose events are proved has had something to say"
