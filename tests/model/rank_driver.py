"""Drives the ranks of one arm in this process, as the inline launcher does, and keeps what they emitted."""

from __future__ import annotations

from stress.config import Config, load_config
from stress.rank import run_rank
from stress.result import RankResult, RankSpec


def run_arm(arm: str, *overrides: str, config: str = "smoke", seed: int | None = None):
    """(results in rank order, emitted lines by rank) of one arm of a shipped configuration."""
    return drive(load_config(config, list(overrides), seed=seed), arm)


def drive(config: Config, arm: str) -> tuple[list[RankResult], list[list]]:
    ranks = config.layout.ranks
    lines: list[list] = [[] for _ in range(ranks)]
    generators = [
        run_rank(
            RankSpec(config=config.to_dict(), arm=arm, rank=rank, ranks=ranks, seed=config.seed),
            lines[rank].append,
        )
        for rank in range(ranks)
    ]
    results: list[RankResult | None] = [None] * ranks
    payloads = [next(generator) for generator in generators]
    while None in results:
        heard, payloads = payloads, [b""] * ranks
        for rank, generator in enumerate(generators):
            try:
                payloads[rank] = generator.send(heard)
            except StopIteration as end:
                results[rank] = end.value
    return results, lines
