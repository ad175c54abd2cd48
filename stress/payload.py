"""What a rank says at an exchange: its step plan, whether it is done, its word to its attention-TP group, its news.

The plan stands at the head and has a fixed width, because it may travel by itself over the ranks' devices
(stress.launch.plan_group). The word is there where groups have more than one member.
"""

from __future__ import annotations

from typing import NamedTuple

from stress.step_plan import PLAN_BYTES, StepPlan, plan_of
from stress.tp_word import TPWord, pack_word, split_word

BUSY, DONE = b"\0", b"\1"
REST_AT = PLAN_BYTES + len(DONE)


class Payload(NamedTuple):
    """`news`: what its store has got, for the other stores."""

    plan: StepPlan
    done: bool
    word: TPWord | None
    news: bytes

    def pack(self) -> bytes:
        word = b"" if self.word is None else pack_word(self.word)
        return self.plan.to_bytes() + (DONE if self.done else BUSY) + word + self.news


def payload_of(payload: bytes, *, in_groups: bool) -> Payload | None:
    """What another rank packed; None for the empty payload of a rank that is lost. ValueError: it is cut."""
    plan = plan_of(payload)
    if plan is None:
        return None
    word, news = split_word(payload, REST_AT) if in_groups else (None, payload[REST_AT:])
    return Payload(plan, payload[PLAN_BYTES:REST_AT] == DONE, word, news)
