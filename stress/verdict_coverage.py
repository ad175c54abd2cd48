"""`coverage` of a verdict document: the marks that were required, and those that arms which ran to their end reached.

Each arm is held to its own run's configuration: two runs that are compared may differ in what they require.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stress.config_schema import Config
from stress.result import RankResult
from stress.verdict_marks import exempt_marks, missing_marks
from stress.verdict_reasons import ran_to_its_end


def coverage_of(arms: Sequence[tuple[Config, list[RankResult]]]) -> dict[str, Any]:
    """{"required", "reached": {mark: count}, "missing", "exempt": {mark: why}} over arms and their ranks' results."""
    ended = [(config, ranks) for config, ranks in arms if ran_to_its_end(config, ranks)]
    reached: dict[str, int] = {}
    for result in (result for _, ranks in ended for result in ranks):
        for mark, count in result.marks.items():
            reached[mark] = reached.get(mark, 0) + count
    missing = {mark for config, ranks in ended for mark in missing_marks(config, ranks)}
    exempt = {mark: why for config, ranks in arms for mark, why in exempt_marks(config, ranks).items()}
    required = list(dict.fromkeys(mark for config, _ in arms for mark in config.check.require))
    return {
        "required": required,
        "reached": {mark: reached[mark] for mark in sorted(reached)},
        "missing": [mark for mark in required if mark in missing],
        "exempt": {mark: exempt[mark] for mark in required if mark in exempt},
    }
