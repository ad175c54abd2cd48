"""Runs the ranks of one arm to their end in this process, without a launcher, files or a clock.

One turn sends every rank the payloads of the last exchange, in rank order, as the inline launcher does; one that has
ended says nothing any more. An exception that is the rank's own trouble, and no result, is raised here.
"""

from __future__ import annotations

from collections.abc import Callable

from stress.config import Config
from stress.rank import run_rank
from stress.result import Emit, RankResult, RankSpec


def drive(
    config: Config, arm: str, emit_of: Callable[[int], Emit], tree: str | None = None
) -> list[RankResult]:
    """Results in rank order. `emit_of(rank)` takes the rank's lines; `tree`: the folder of the arm's real engine."""
    ranks = config.layout.ranks
    plain = config.to_dict()
    generators = [
        run_rank(
            RankSpec(config=plain, arm=arm, rank=rank, ranks=ranks, seed=config.seed, tree=tree),
            emit_of(rank),
        )
        for rank in range(ranks)
    ]
    results: dict[int, RankResult] = {}
    payloads = [next(generator) for generator in generators]
    while len(results) < ranks:
        heard, payloads = payloads, [b""] * ranks
        for rank, generator in enumerate(generators):
            try:
                payloads[rank] = generator.send(heard)
            except StopIteration as end:
                results[rank] = end.value
    return [results[rank] for rank in range(ranks)]
