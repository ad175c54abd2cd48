"""What the doctor says of one thing, and of the machine as a whole.

`broken`: something that `kvstress run` needs is not there, with the default launcher or with any. `warning`: a part
won't work, or only just. Everything that is not `ok` has a cure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

State = Literal["ok", "warning", "broken"]
_WORST_FIRST: tuple[State, ...] = ("broken", "warning", "ok")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at. `found` says what it is, `means` what will or won't run, `values` the same for scripts."""

    name: str
    state: State
    found: str
    means: str = ""
    cure: str = ""
    values: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.state != "ok" and not (self.means and self.cure):
            raise ValueError(f"check {self.name}: {self.state} needs what it means, and a cure")


def worst_state(checks: Sequence[Check]) -> State:
    """broken > warning > ok."""
    states = {check.state for check in checks}
    return next(state for state in _WORST_FIRST if state in states or state == "ok")
