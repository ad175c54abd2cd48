"""How a context changes from turn to turn: it grows, drops a few blocks of its tail, or loses its prefix.

    growth      keeps the whole blocks (5 % drop the last ones, re-tokenised) and adds output + what came from outside
    rewrite     keeps about the head and rewrites the rest at a similar length: a tail freed and a tail taken in one step
    compaction  the same at less than 70 % of the length; also where the context would pass ``prompt_max``
    return      goes back to the context before the last loss (interleaved streams) and grows from there

Block ids are epoch << 24 | position: a step that breaks the chain opens an epoch, so an id names one prefix of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stress.workload import tables
from stress.workload.draw import quantile
from stress.words import below, chance

BLOCK_TOKENS = 64
_POSITION_BITS, _STREAM_BITS = 24, 44
_RETURN_PPM, _REWRITE_PPM = 50_000, 730_000  # of losses: 5 % return, 68 % rewrite, 27 % compaction
_KEEP = np.array(tables.LOSS_KEEP, dtype=np.int64)
_PERMILLE = np.array(tables.LOSS_PERMILLE, dtype=np.int64)
_BAND = np.array(tables.LOSS_BAND_PERCENT, dtype=np.int64)


@dataclass
class Walk:
    """Prompts of rows in stream order; runs as in Sessions."""

    input: np.ndarray
    keep: np.ndarray
    run_row: np.ndarray
    run_start: np.ndarray
    run_count: np.ndarray

    def joined(self, other: Walk, number: np.ndarray) -> Walk:
        """Both, one after the other; ``number`` (> 0 for each stream run of ``other``) keeps their ids apart."""
        apart = np.repeat(number, other.stream_runs) << _STREAM_BITS
        return Walk(
            np.concatenate((self.input, other.input)),
            np.concatenate((self.keep, other.keep)),
            np.concatenate((self.run_row, other.run_row[1:] + self.run_row[-1])),
            np.concatenate((self.run_start, other.run_start + apart)),
            np.concatenate((self.run_count, other.run_count)),
        )

    stream_runs: np.ndarray | None = None  # int64[streams], runs of each stream


class _State:
    """Of the streams that still run: prompt before, output before, the point that a return goes back to."""

    def __init__(self, streams: int):
        self.older = np.full(streams, -1, dtype=np.int64)  # turn before the last loss
        self.older_blocks = np.zeros(streams, dtype=np.int64)
        self.older_keep = np.zeros(streams, dtype=np.int64)  # blocks of it that the present chain still holds
        self.lost = np.zeros(streams, dtype=bool)


def walk(profile, turns, first, extern, output, loss_ppm, draw) -> Walk:
    """Prompts of all rows of streams with ``turns`` rows each; ``draw(name)`` gives uint64[rows]."""
    first_row = np.cumsum(turns) - turns
    rows = int(turns.sum())
    extern = extern // profile.context_divisor
    drop = np.where(
        chance(draw("drop"), tables.DROP_PPM), quantile(np.array(tables.DROP), draw("drop/size")), 0
    )
    lose, kind = below(draw("loss"), 1_000_000), below(draw("loss/kind"), 1_000_000)
    keep_word, size_word = draw("loss/keep"), draw("loss/size")
    prompt, keep = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    breaks, back = np.zeros(rows, dtype=bool), np.full(rows, -1, dtype=np.int64)
    prompt[first_row] = np.clip(first // profile.context_divisor, profile.prompt_min, profile.prompt_max)
    state, by_length = _State(len(turns)), np.argsort(-turns, kind="stable")
    for turn in range(1, int(turns.max(initial=0))):
        live = by_length[: int(np.searchsorted(-turns[by_length], -turn, side="left"))]
        row = first_row[live] + turn
        held = prompt[row - 1]
        band = np.searchsorted(tables.BANDS, held * profile.context_divisor, side="right")
        rate = np.where(
            state.lost[live],
            np.minimum(loss_ppm[row] * 9, tables.LOSS_AGAIN_PPM),
            loss_ppm[row] * _BAND[band] // 100,
        )
        grown = np.maximum(held + output[row - 1] + extern[row], 1)
        kept = np.minimum(
            held // BLOCK_TOKENS - np.minimum(drop[row], held // (2 * BLOCK_TOKENS)), grown // BLOCK_TOKENS
        )
        full = grown > profile.prompt_max
        lost = (lose[row] < rate) | full
        size = np.maximum(grown, kept * BLOCK_TOKENS + 1)
        returns = lost & ~full & (kind[row] < _RETURN_PPM) & (state.older[live] >= 0)
        resets = lost & ~returns
        if resets.any():
            some = np.flatnonzero(resets)
            shrinks = (full[some] | (kind[row[some]] >= _REWRITE_PPM)).astype(np.int64)
            kept[some], size[some] = _reset(
                profile, held[some], shrinks, keep_word[row[some]], size_word[row[some]]
            )
        for at in np.flatnonzero(returns).tolist():
            one = live[at]
            back[row[at]] = first_row[one] + state.older[one]
            kept[at] = state.older_keep[one]
            size[at] = min(
                profile.prompt_max,
                state.older_blocks[one] * BLOCK_TOKENS + 1 + max(0, int(grown[at] - held[at])),
            )
        breaks[row] = lost | (kept < held // BLOCK_TOKENS)
        state.older_keep[live] = np.where(resets, kept, np.minimum(state.older_keep[live], kept))
        state.older[live] = np.where(resets, turn - 1, np.where(returns, -1, state.older[live]))
        state.older_blocks[live] = np.where(resets, held // BLOCK_TOKENS, state.older_blocks[live])
        state.lost[live] = lost
        prompt[row], keep[row] = size, kept
    return _runs(turns, first_row, prompt, keep, breaks, back)


def _reset(profile, held, shrinks, keep_word, size_word) -> tuple[np.ndarray, np.ndarray]:
    """(blocks kept, prompt) after a rewrite (shrinks = 0) or a compaction (1) of prompts of ``held`` tokens."""
    kept = (
        np.minimum(quantile(_KEEP, keep_word, shrinks) // profile.context_divisor, held // 2) // BLOCK_TOKENS
    )
    size = held * quantile(_PERMILLE, size_word, shrinks) // 1000
    low = np.maximum(profile.prompt_min, (kept + 1) * BLOCK_TOKENS)
    return kept, np.clip(size, low, max(profile.prompt_max, 1))


def _runs(turns, first_row, prompt, keep, breaks, back) -> Walk:
    """Adds the runs of new ids: one a row, more where a row goes back to an older context."""
    epoch = np.cumsum(breaks)
    epoch = epoch - np.repeat(epoch[first_row], turns)
    blocks = prompt // BLOCK_TOKENS
    start, count = (epoch << _POSITION_BITS) + keep, blocks - keep
    pieces = (count > 0).astype(np.int64)
    returns = np.flatnonzero(back >= 0)
    chains = {}
    for row in returns.tolist():
        older = _chain(int(back[row]), start, count, keep, blocks, chains)
        runs = _slice(older, int(keep[row]), int(blocks[row]))
        depth = int(keep[row]) + sum(c for _, c in runs)
        if depth < blocks[row]:
            runs.append((int(epoch[row] << _POSITION_BITS) + depth, int(blocks[row]) - depth))
        chains[row] = runs
        pieces[row] = len(runs)
    run_row = np.concatenate(([0], np.cumsum(pieces)))
    run_start, run_count = (
        np.zeros(int(run_row[-1]), dtype=np.int64),
        np.zeros(int(run_row[-1]), dtype=np.int64),
    )
    plain = (pieces > 0) & (back < 0)
    run_start[run_row[:-1][plain]], run_count[run_row[:-1][plain]] = start[plain], count[plain]
    for row, runs in chains.items():
        for k, (s, c) in enumerate(runs):
            run_start[run_row[row] + k], run_count[run_row[row] + k] = s, c
    ends = run_row[first_row + turns] - run_row[first_row]
    return Walk(prompt, keep, run_row, run_start, run_count, ends)


def _chain(row: int, start, count, keep, blocks, chains) -> list[tuple[int, int]]:
    """The ids of a row as runs, from the rows that wrote them; the walk goes back to where nothing is left to name."""
    runs, need = [], int(blocks[row])
    while need > 0:
        kept = int(keep[row])
        if count[row] > 0 and kept < need:
            own = chains.get(row) or [(int(start[row]), int(count[row]))]
            runs.extend(_slice(own, 0, need - kept)[::-1])
            need = kept
        row -= 1
    return runs[::-1]


def _slice(runs: list[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """Blocks [lo, hi) of a chain of runs."""
    out, at = [], 0
    for start, count in runs:
        a, b = max(lo, at), min(hi, at + count)
        if a < b:
            out.append((start + a - at, b - a))
        at += count
    return out
