"""Agentic sessions drawn from the tables: what the allocator sees of real ones, without the trace.

Ties that matter and are kept: turns x first input x growth (sessions that stop early grow fast), output and wait
by what ended the turn before, lag 1 of growth, output and wait, all three kinds of prefix loss (context.py),
sub-agents with a head of their own that the parent waits for. Session j depends on (seed, j) alone, so more
sessions never change a session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stress.words import below, chance, split, words
from stress.workload import tables
from stress.workload.context import BLOCK_TOKENS, Losses, Walk, walk
from stress.workload.draw import quantile, sticky, weighted
from stress.workload.errors import WorkloadError
from stress.workload.sessions import Sessions


def _table(name: str) -> np.ndarray:
    return np.array(getattr(tables, name), dtype=np.int64)


@dataclass(frozen=True)
class Profile:
    """How a generated workload differs from the tables."""

    context_divisor: int = 1  # prompts, heads and growth are divided by it
    output_divisor: int = 1
    turns_max: int = 100_000
    prompt_min: int = 1
    prompt_max: int = 900_000  # a turn that would pass it compacts
    agent_session_ppm: int = tables.AGENT_SESSION_PPM
    edge_ppm: int = 0  # turns whose prompt is lengthened to a block's edge
    again_ppm: int = 0  # turns that ask the prompt before them once more


PROFILES = {
    "generated:agentic": Profile(),
    "generated:agentic-small": Profile(
        context_divisor=28,
        output_divisor=8,
        turns_max=40,
        prompt_min=300,
        prompt_max=6_000,
        agent_session_ppm=250_000,
        edge_ppm=500_000,
        again_ppm=350_000,
    ),
    # For pages of 16 tokens in pools of some dozens of them.
    "generated:agentic-tiny": Profile(
        context_divisor=280,
        output_divisor=16,
        turns_max=40,
        prompt_min=20,
        prompt_max=600,
        agent_session_ppm=250_000,
        edge_ppm=300_000,
        again_ppm=250_000,
    ),
}
_AGAIN_PPM = {"growth": 200_000, "output": 270_000, "wait": 260_000}  # a draw repeats the one before
_OUTPUT_FOLLOWS_GROWTH_PPM = 200_000
_WAIT_FOLLOWS_GROWTH_PPM = 150_000
_AGENT = 1 << 20  # sub-agents draw as pseudo-sessions session * _AGENT + number


def generated_profile(name: str) -> Profile:
    """The profile of workload.trace = "generated:..."; raises WorkloadError with the names that exist."""
    if name not in PROFILES:
        raise WorkloadError(f"workload.trace = {name!r}: no such generator; use " + " or ".join(PROFILES))
    return PROFILES[name]


@dataclass
class _Streams:
    """Drawn rows of one kind of stream, before sessions are put together."""

    session: np.ndarray  # int64[streams]
    head: np.ndarray
    turns: np.ndarray
    output: np.ndarray  # int64[rows], as are the rest
    wait_us: np.ndarray
    walk: Walk


def generate_sessions(profile: Profile, seed: int, count: int) -> Sessions:
    """``count`` sessions with 64-token blocks; arrival_us is left 0, as nothing was recorded."""
    roots = _roots(profile, seed, count)
    agents, release = _agents(profile, seed, roots)
    return _assemble(roots, agents, release, count)


def _whole_seconds_us(milliseconds: np.ndarray) -> np.ndarray:
    """The trace records waits in whole seconds, so drawn ones are."""
    return (milliseconds + 500) // 1000 * 1_000_000


def _base(seed: int, name: str) -> np.uint64:
    return split(seed, f"generator/{name}")


def _roots(profile: Profile, seed: int, count: int) -> _Streams:
    session = np.arange(count)

    def draw(name: str) -> np.ndarray:
        return words(_base(seed, f"session/{name}"), session)

    turns = quantile(_table("TURNS"), draw("turns"))
    kind = np.searchsorted(tables.TURN_EDGES, turns, side="left")
    first = quantile(_table("FIRST"), draw("first"), kind)
    resumed = (first > tables.RESUMED).astype(np.int64)
    level = weighted(_table("LEVEL_COUNTS"), draw("level"), kind, resumed)
    out_level = weighted(_table("OUT_LEVEL_COUNTS"), draw("output"), level)
    wait_level = weighted(_table("WAIT_LEVEL_COUNTS"), draw("wait"), kind)
    head = quantile(_table("HEAD"), draw("head")) // profile.context_divisor
    turns = np.minimum(turns, profile.turns_max)

    of = np.repeat(session, turns)
    turn = np.arange(len(of)) - np.repeat(np.cumsum(turns) - turns, turns)

    def row_draw(name: str) -> np.ndarray:
        return words(_base(seed, f"row/{name}"), of, turn)

    def tied(name: str) -> np.ndarray:
        return sticky(row_draw(name), (turn > 0) & chance(row_draw(f"{name}/again"), _AGAIN_PPM[name]))

    growth_word = tied("growth")
    follows = chance(row_draw("output/follows"), _OUTPUT_FOLLOWS_GROWTH_PPM)
    output_word = np.where(follows, growth_word, tied("output"))
    ended = chance(row_draw("end"), _table("END_PPM")[wait_level[of]])
    output = quantile(_table("OUTPUT"), output_word, out_level[of], ended.astype(np.int64))
    output = np.maximum(output // profile.output_divisor, 1)
    before = np.concatenate(([0], output[:-1])) * profile.output_divisor
    out_class = np.searchsorted(tables.OUT_EDGES, before, side="right")
    extern = [quantile(_table("EXTERN"), growth_word, level[of], late, out_class) for late in (0, 1, 2)]
    after_end = np.concatenate(([False], ended[:-1])).astype(np.int64)
    follows = chance(row_draw("wait/follows"), _WAIT_FOLLOWS_GROWTH_PPM)
    wait_word = np.where(follows, growth_word, tied("wait"))
    wait_ms = quantile(_table("WAIT_MS"), wait_word, wait_level[of], after_end)
    wait_us = _whole_seconds_us(wait_ms)
    percent = _table("LOSS_TURNS_PERCENT")[kind]
    path = walk(profile, turns, first, extern, output, Losses(resumed, percent), row_draw)
    return _Streams(session, _within(head, path, turns), turns, output, np.where(turn > 0, wait_us, 0), path)


def _within(head: np.ndarray, path: Walk, turns: np.ndarray) -> np.ndarray:
    """Heads, each shorter than its stream's first prompt."""
    return np.minimum(head, path.input[np.cumsum(turns) - turns] - 1)


def _agents(profile: Profile, seed: int, roots: _Streams) -> tuple[_Streams, np.ndarray]:
    """Sub-agents of the sessions that have any, and for each the root turn (>= 0) whose end releases it."""
    base = _base(seed, "agent/session")
    has = chance(words(base, 0, roots.session), profile.agent_session_ppm) & (roots.turns >= 2)
    owner, number, release = [], [], []
    for session in roots.session[has].tolist():
        parents = int(quantile(_table("AGENT_PARENTS"), words(base, 1, session)))
        turns = below(words(base, 2, session, np.arange(parents)), int(roots.turns[session]) - 1)
        agents = 0
        for turn in np.unique(turns).tolist():
            for _ in range(max(1, int(quantile(_table("AGENT_FAN_OUT"), words(base, 3, session, turn))))):
                owner.append(session)
                number.append(agents)
                release.append(turn)
                agents += 1
    owner = np.array(owner, dtype=np.int64)
    name = owner * _AGENT + np.array(number, dtype=np.int64)

    def draw(label: str) -> np.ndarray:
        return words(_base(seed, f"agent/{label}"), name)

    turns = np.minimum(quantile(_table("AGENT_TURNS"), draw("turns")), profile.turns_max)
    first = quantile(_table("AGENT_FIRST"), draw("first"))
    head = quantile(_table("AGENT_HEAD"), draw("head")) // profile.context_divisor
    of = np.repeat(np.arange(len(name)), turns)
    turn = np.arange(len(of)) - np.repeat(np.cumsum(turns) - turns, turns)

    def row_draw(label: str) -> np.ndarray:
        return words(_base(seed, f"agent/row/{label}"), name[of], turn)

    output = np.maximum(quantile(_table("AGENT_OUTPUT"), row_draw("output")) // profile.output_divisor, 1)
    extern = quantile(_table("AGENT_EXTERN"), row_draw("growth"))
    wait_us = _whole_seconds_us(quantile(_table("AGENT_WAIT_MS"), row_draw("wait")))
    path = walk(profile, turns, first, [extern] * 3, output, Losses(0 * turns, 0 * turns), row_draw)
    streams = _Streams(owner, _within(head, path, turns), turns, output, wait_us, path)
    return streams, np.array(release, dtype=np.int64)


def _assemble(roots: _Streams, agents: _Streams, release: np.ndarray, count: int) -> Sessions:
    """Puts roots and agents in session order, streams and rows adjacent."""
    streams = len(roots.turns) + len(agents.turns)
    owner = np.concatenate((roots.session, agents.session))
    is_agent = np.arange(streams) >= count
    order = np.lexsort((np.arange(streams), is_agent, owner))
    turns = np.concatenate((roots.turns, agents.turns))
    starts = np.cumsum(turns) - turns
    stream_row = np.concatenate(([0], np.cumsum(turns[order])))
    row = np.repeat(starts[order] - stream_row[:-1], turns[order]) + np.arange(int(stream_row[-1]))
    place = np.empty(streams, dtype=np.int64)
    place[order] = np.arange(streams)
    after = np.full(streams, -1, dtype=np.int64)
    after[place[is_agent]] = stream_row[place[agents.session]] + release
    join = np.where(after >= 0, after + 1, -1)
    path = roots.walk.joined(agents.walk, number=(place - place[owner])[is_agent])
    runs = np.diff(path.run_row)[row]
    run_row = np.concatenate(([0], np.cumsum(runs)))
    run = np.repeat(path.run_row[:-1][row] - run_row[:-1], runs) + np.arange(int(run_row[-1]))
    session_stream = np.concatenate((np.flatnonzero(~is_agent[order]), [streams]))
    return Sessions(
        BLOCK_TOKENS,
        ceil_tail=False,
        shared_ids=False,
        timed=False,
        session_stream=session_stream,
        stream_row=stream_row,
        stream_head=np.concatenate((roots.head, agents.head))[order],
        stream_after=after,
        stream_join=join,
        input=path.input[row],
        output=np.concatenate((roots.output, agents.output))[row],
        keep=path.keep[row],
        wait_us=np.concatenate((roots.wait_us, agents.wait_us))[row],
        arrival_us=np.zeros(len(row), dtype=np.int64),
        run_row=run_row,
        run_start=path.run_start[run],
        run_count=path.run_count[run],
    )
