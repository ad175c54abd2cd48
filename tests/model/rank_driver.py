"""Drives the ranks of one arm in this process and keeps what they emitted."""

from __future__ import annotations

from stress.config import Config, load_config
from stress.matrix.drive import drive as drive_ranks
from stress.result import RankResult


def run_arm(arm: str, *overrides: str, config: str = "smoke", seed: int | None = None):
    """(results in rank order, emitted lines by rank) of one arm of a shipped configuration."""
    return drive(load_config(config, list(overrides), seed=seed), arm)


def drive(config: Config, arm: str) -> tuple[list[RankResult], list[list]]:
    lines: list[list] = [[] for _ in range(config.layout.ranks)]
    return drive_ranks(config, arm, lambda rank: lines[rank].append), lines
