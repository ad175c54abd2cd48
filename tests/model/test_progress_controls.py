"""Controls of I14 and I22 on whole ranks: a memory that refuses what it has, a loop that forgets to poll."""

from __future__ import annotations

import pytest
from rank_driver import run_arm

from stress.engine.reference.memory import Memory
from stress.serving.decode import Decode

ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1", "check.require=[]")


def test_a_memory_that_refuses_once_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    correct, refused = Memory.lengthen, []

    def lengthen(self, targets, step):
        if step == "prompt" and not refused and self.allocator.available_size() > 20 * self.page_size:
            refused.append(step)
            return False
        return correct(self, targets, step)

    monkeypatch.setattr(Memory, "lengthen", lengthen)
    (result,), _ = run_arm("patched", *ONE_RANK, "workload.requests=20")
    assert result.findings == {"I14": 1}
    assert "pages were refused" in result.first_finding.message


def test_cleanup_that_waits_for_the_next_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode turns no longer poll: with outputs that last minutes, offloads are due and nobody looks."""
    busy = Decode._busy_turn

    def blind(self):
        poll, self.state.poll = self.state.poll, lambda: None
        try:
            busy(self)
        finally:
            self.state.poll = poll

    shape = (*ONE_RANK, "workload.requests=20", "workload.concurrency=1", "serving.step_base_ms=20000")
    assert run_arm("patched", *shape)[0][0].findings == {}
    monkeypatch.setattr(Decode, "_busy_turn", blind)
    assert run_arm("patched", *shape)[0][0].findings == {"I22": 1}
