"""How a context changes from turn to turn: it grows, drops a few blocks of its tail, or loses its prefix.

    growth      keeps the whole blocks (5 % drop the last ones, re-tokenised) and adds output + what came from outside
    rewrite     keeps about the head and rewrites the rest at a similar length: a tail freed, a tail taken at once
    compaction  the same at less than 70 % of the length; also where the context would pass ``prompt_max``
    again       asks the same prompt once more: a client's retry (a stress dial, as is ending on a block's edge)
    return      goes back to the context before the last loss (interleaved streams) and grows from there

Block ids are epoch << 24 | position: a step that breaks the chain opens an epoch, so an id names one prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stress.words import below, chance
from stress.workload import tables
from stress.workload.draw import quantile

BLOCK_TOKENS = 64
_POSITION_BITS, _STREAM_BITS = 24, 44
_RETURN_PPM = 160_000  # of losses after an earlier loss that do not shrink: 5 % of all
_KEEP = np.array(tables.LOSS_KEEP, dtype=np.int64)
_PERMILLE = np.array(tables.LOSS_PERMILLE, dtype=np.int64)
_LOSS = np.array(tables.LOSS_PPM, dtype=np.int64)
_SHRINK = np.array(tables.LOSS_SHRINK_PPM, dtype=np.int64)


@dataclass
class Walk:
    """Prompts of rows in stream order; runs as in Sessions."""

    input: np.ndarray
    keep: np.ndarray
    run_row: np.ndarray
    run_start: np.ndarray
    run_count: np.ndarray
    stream_runs: np.ndarray  # int64[streams], runs of each stream

    def joined(self, other: Walk, number: np.ndarray) -> Walk:
        """Both, one after the other; ``number`` (> 0 for each stream run of ``other``) keeps their ids apart."""
        apart = np.repeat(number, other.stream_runs) << _STREAM_BITS
        return Walk(
            np.concatenate((self.input, other.input)),
            np.concatenate((self.keep, other.keep)),
            np.concatenate((self.run_row, other.run_row[1:] + self.run_row[-1])),
            np.concatenate((self.run_start, other.run_start + apart)),
            np.concatenate((self.run_count, other.run_count)),
            np.concatenate((self.stream_runs, other.stream_runs)),
        )


@dataclass
class Losses:
    """What the chance of a loss depends on besides the context: int64[streams] each."""

    resumed: np.ndarray  # 1: the session began with a long context
    percent: np.ndarray  # of the chance at that context


def walk(profile, turns, first, extern, output, losses: Losses, draw) -> Walk:
    """Prompts of all rows of streams with ``turns`` rows each.

    ``extern`` is int64[rows] for each band of EARLY_EDGES, tokens from outside; ``draw(name)`` gives uint64[rows].
    """
    path = _Path(profile, turns, [part // profile.context_divisor for part in extern], output, losses, draw)
    path.prompt[path.first_row] = np.clip(
        first // profile.context_divisor, profile.prompt_min, profile.prompt_max
    )
    by_length = np.argsort(-turns, kind="stable")
    for turn in range(1, int(turns.max(initial=0))):
        path.step(turn, by_length[: int(np.searchsorted(-turns[by_length], -turn, side="left"))])
    return _runs(turns, path.first_row, path.prompt, path.keep, path.breaks, path.back)


class _Path:
    """The prompts of all streams, one turn of every live stream at a time."""

    def __init__(self, profile, turns, extern, output, losses: Losses, draw):
        self.profile, self.extern, self.output, self.losses = profile, extern, output, losses
        rows, streams = int(turns.sum()), len(turns)
        self.first_row = np.cumsum(turns) - turns
        dropped = chance(draw("drop"), tables.DROP_PPM)
        self.drop = np.where(dropped, quantile(np.array(tables.DROP), draw("drop/size")), 0)
        self.lose, self.kind = below(draw("loss"), 1_000_000), below(draw("loss/kind"), 1_000_000)
        self.keep_word, self.size_word = draw("loss/keep"), draw("loss/size")
        self.back_word = below(draw("loss/return"), 1_000_000)
        self.prompt, self.keep = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        self.breaks, self.back = np.zeros(rows, dtype=bool), np.full(rows, -1, dtype=np.int64)
        self.edge, self.again = (
            chance(draw("edge"), profile.edge_ppm),
            chance(draw("again"), profile.again_ppm),
        )
        # The turn before the last loss: what a return goes back to.
        self.older = np.full(streams, -1, dtype=np.int64)
        self.older_blocks = np.zeros(streams, dtype=np.int64)
        self.older_keep = np.zeros(streams, dtype=np.int64)  # blocks of it that the present chain still holds
        self.lost = np.zeros(streams, dtype=bool)

    def step(self, turn: int, live: np.ndarray) -> None:
        """Turn ``turn`` of the streams ``live``."""
        profile, row = self.profile, self.first_row[live] + turn
        held = self.prompt[row - 1]
        context = held * profile.context_divisor
        extern = np.choose(
            np.searchsorted(tables.EARLY_EDGES, context, side="right"), [part[row] for part in self.extern]
        )
        grown = np.maximum(held + self.output[row - 1] + extern, profile.prompt_min)
        blocks = held // BLOCK_TOKENS
        kept = np.minimum(blocks - np.minimum(self.drop[row], blocks // 2), grown // BLOCK_TOKENS)
        full = grown > profile.prompt_max
        lost, shrinks = self._losses(row, live, context, full)
        returns = lost & ~shrinks & (self.back_word[row] < _RETURN_PPM) & (self.older[live] >= 0)
        resets = lost & ~returns
        size = np.maximum(grown, kept * BLOCK_TOKENS + 1)
        some = np.flatnonzero(resets)
        if len(some):
            kept[some], size[some] = self._reset(
                row[some], held[some], context[some], shrinks[some].astype(np.int64)
            )
        some = np.flatnonzero(returns)
        if len(some):
            one = live[some]
            self.back[row[some]] = self.first_row[one] + self.older[one]
            kept[some] = self.older_keep[one]
            more = self.older_blocks[one] * BLOCK_TOKENS + 1 + np.maximum(grown[some] - held[some], 0)
            size[some] = np.minimum(more, profile.prompt_max)
        rounded = -(-size // BLOCK_TOKENS) * BLOCK_TOKENS
        size = np.where(self.edge[row] & (rounded <= profile.prompt_max), rounded, size)
        again = self.again[row] & ~lost
        kept, size = np.where(again, blocks, kept), np.where(again, held, size)
        self.breaks[row] = lost | (kept < blocks)
        self.older_keep[live] = np.where(resets, kept, np.minimum(self.older_keep[live], kept))
        self.older[live] = np.where(resets, turn - 1, np.where(returns, -1, self.older[live]))
        self.older_blocks[live] = np.where(resets, blocks, self.older_blocks[live])
        self.lost[live] = lost
        self.prompt[row], self.keep[row] = size, kept

    def _losses(self, row, live, context, full) -> tuple[np.ndarray, np.ndarray]:
        """(loses its prefix, and becomes much shorter by it); a full context does both."""
        resumed, band = self.losses.resumed[live], np.searchsorted(tables.BANDS, context, side="right")
        rate = np.where(self.lost[live], tables.LOSS_AGAIN_PPM, _LOSS[resumed, band])
        lost = (self.lose[row] < rate * self.losses.percent[live] // 100) | full
        return lost, full | (self.kind[row] < _SHRINK[resumed, band])

    def _reset(self, row, held, context, shrinks) -> tuple[np.ndarray, np.ndarray]:
        """(blocks kept, prompt) after a rewrite (shrinks = 0) or a compaction (1) of prompts of ``held`` tokens."""
        profile = self.profile
        kept = quantile(_KEEP, self.keep_word[row], shrinks) // profile.context_divisor
        kept = np.minimum(kept, held // 2) // BLOCK_TOKENS
        long = (context >= tables.LOSS_EDGE).astype(np.int64)
        size = held * quantile(_PERMILLE, self.size_word[row], shrinks, long) // 1000
        low = np.maximum(profile.prompt_min, (kept + 1) * BLOCK_TOKENS)
        return kept, np.clip(size, low, profile.prompt_max)


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
