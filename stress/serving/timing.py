"""What a step costs in virtual time, and how many slots it wants: integers from the [serving] table."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    chunk_tokens: int
    max_running: int
    step_us: int  # a decode step, and the fixed part of a prefill step
    prefill_tokens_per_s: int
    slots_ahead: int  # slots kept ahead of what is committed: 2 x drafts, 1 without drafts

    def prefill_us(self, tokens: int) -> int:
        return self.step_us + tokens * 1_000_000 // self.prefill_tokens_per_s


def timing_of(serving) -> Timing:
    """`serving`: the [serving] table."""
    return Timing(
        chunk_tokens=serving.chunk_tokens,
        max_running=serving.max_running,
        step_us=round(serving.step_base_ms * 1000),
        prefill_tokens_per_s=round(serving.prefill_tokens_per_s),
        slots_ahead=2 * serving.draft_tokens or 1,
    )
