"""What of a configuration is for targets whose own scheduler decides, and what such a target has none of."""

from __future__ import annotations

from collections.abc import Iterator

from stress.config_schema import Config, Serving
from stress.target.name import mode_of

_OWN = ("policy", "prompt_chunk_tokens")  # of [serving]: the target's scheduler alone heeds them
_EXAMPLE = "vllm-scheduler==0.33.0"


def broken_scheduler(config: Config) -> Iterator[str]:
    """`PATH: what; the cure`, one line each."""
    default = Serving()
    given = [name for name in _OWN if getattr(config.serving, name) != getattr(default, name)]
    for arm, record in config.arms.named.items():
        if mode_of(record.target) != "scheduler":
            for name in given:
                yield (
                    f"serving.{name}: {getattr(config.serving, name)!r} is for a target whose own scheduler decides, "
                    f"and arms.{arm} is {record.target}; leave it out, or name one, as in {_EXAMPLE}"
                )
            continue
        if config.linker.enabled:
            yield (
                f"linker.enabled: the scheduler of {record.target} (arms.{arm}) is driven without a connector; set it "
                "to false"
            )
        if config.workload.ballast:
            yield (
                f"workload.ballast: {config.workload.ballast} is lent past the scheduler, and arms.{arm} is "
                f"{record.target}, which lends all by its own; set it to 0"
            )
