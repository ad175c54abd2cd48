"""Generated sessions: independent of their number, all kinds of prefix loss, lag 1, sub-agents; and the words below."""

import numpy as np
import pytest

from stress.words import below, chance, hash_ids, mix, split, words
from stress.workload.draw import quantile, sticky, weighted
from stress.workload.generator import PROFILES, generate_sessions
from stress.workload.info import expand_ids


@pytest.fixture(scope="module")
def small():
    return generate_sessions(PROFILES["generated:agentic-small"], 1, 400)


def steps(s):
    """(row, blocks of the row before, lost its prefix) of every row that follows another."""
    row = np.flatnonzero(~s.first_rows())
    held = s.input[row - 1] // 64
    return row, held, (held - s.keep[row]) * 64 > s.input[row - 1] // 2


def test_more_sessions_never_change_a_session():
    few, many = (generate_sessions(PROFILES["generated:agentic"], 3, n) for n in (20, 90))
    rows = few.rows
    for name in ("input", "output", "keep", "wait_us"):
        assert np.array_equal(getattr(few, name), getattr(many, name)[:rows]), name
    runs = len(few.run_start)
    assert np.array_equal(few.run_start, many.run_start[:runs]) and np.array_equal(
        few.run_count, many.run_count[:runs]
    )
    assert np.array_equal(few.stream_head, many.stream_head[: len(few.stream_head)])


def test_runs_fill_every_prompt(small):
    counts = np.add.reduceat(np.append(small.run_count, 0), small.run_row[:-1]) * (np.diff(small.run_row) > 0)
    assert np.array_equal(small.keep + counts, small.input // 64)
    assert (small.run_count > 0).all() and (small.keep >= 0).all()
    row, held, _ = steps(small)
    assert (small.keep[row] <= held).all() and (small.keep[small.first_rows()] == 0).all()


def test_ids_are_chained(small):
    """Within a session an id has one position and one id before it, so keep is the longest common prefix."""
    streams = small.row_stream()
    session = np.searchsorted(small.session_stream, streams, side="right") - 1
    place = {}
    for row, ids in enumerate(expand_ids(small)):
        for p, one in enumerate(ids):
            where = (p, ids[p - 1] if p else -1, int(streams[row]))
            assert place.setdefault((int(session[row]), one), where) == where


def test_three_kinds_of_loss():
    s = generate_sessions(PROFILES["generated:agentic"], 1, 1500)
    row, held, lost = steps(s)
    assert 0.012 < lost.mean() < 0.025
    runs = np.diff(s.run_row)[row]
    back = lost & (runs > 1)
    shrunk = lost & ~back & (s.input[row] * 10 < held * 64 * 7)
    kinds = np.array([back.sum(), shrunk.sum(), (lost & ~back & ~shrunk).sum()]) / lost.sum()
    assert 0.01 < kinds[0] < 0.10, "returns to an older prefix"
    assert 0.17 < kinds[1] < 0.37, "compactions"
    assert 0.58 < kinds[2] < 0.80, "rewrites"


def test_turns_are_tied_to_the_turn_before():
    s = generate_sessions(PROFILES["generated:agentic"], 1, 700)
    row = np.flatnonzero(~s.first_rows())
    for values in (s.output, s.wait_us, s.new_tokens()):
        second = row[np.isin(row - 1, row)]
        rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
        assert 0.15 < np.corrcoef(rank[second], rank[second - 1])[0, 1] < 0.45


def test_small_contexts_stay_small(small):
    assert small.input.min() >= 300 and small.input.max() <= 6000
    assert (small.stream_head < small.input[small.stream_row[:-1]]).all()
    agents = len(small.stream_head) - small.count
    assert agents > 50
    assert (small.stream_join == np.where(small.stream_after >= 0, small.stream_after + 1, -1)).all()
    owner = np.searchsorted(small.session_stream, np.arange(len(small.stream_head)), side="right") - 1
    root = small.session_stream[owner]
    joined = small.stream_join >= 0
    assert (small.stream_join[joined] < small.stream_row[root + 1][joined]).all()
    assert (small.stream_after[joined] >= small.stream_row[root][joined]).all()


def test_words_are_pinned_and_spread():
    base = split(1, "session/growth")
    assert base == split(1, "session/growth") != split(2, "session/growth")
    assert int(split(0, "a")) == 0x3A030DABA6EC79B9
    assert split(0, "a") != split(0, "b")
    w = words(base, np.arange(20_000), 3)
    assert np.array_equal(w[5:9], words(base, np.arange(5, 9), 3)) and int(words(base, 7, 3)) == int(w[7])
    assert len(set(w.tolist())) == 20_000
    counts = np.bincount(below(w, 10))
    assert len(counts) == 10 and np.abs(counts - 2000).max() < 250
    assert abs(chance(w, 250_000).mean() - 0.25) < 0.02
    assert not chance(w, 0).any() and chance(w, 1_000_000).all()
    assert int(mix(np.uint64(1))) == 0x5692161D100B05E5
    ranks = hash_ids(base, np.arange(4000), 8)
    assert np.abs(np.bincount(ranks) - 500).max() < 100


def test_draws():
    from stress.workload import tables

    table = np.array([[0] * len(tables.GRID), list(range(len(tables.GRID)))])
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert quantile(table, ends, 1).tolist() == [0, len(tables.GRID) - 2]
    assert quantile(table * 1000, ends, 1)[1] > (len(tables.GRID) - 2) * 1000 + 900
    picked = weighted(np.array([[0, 3, 1], [1, 0, 0]]), words(split(1, "w"), np.arange(4000)), 0)
    assert np.abs(np.bincount(picked) / 4000 - [0, 0.75, 0.25]).max() < 0.03
    again = np.array([False, True, True, False, True])
    assert sticky(np.arange(5).astype(np.uint64), again).tolist() == [0, 0, 0, 3, 3]
