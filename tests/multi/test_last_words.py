"""A run that is ended between two landings: what its ranks had seen by then is checked, and told."""

from __future__ import annotations

import json
import os
import signal as signals
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stress.command.interrupt import ENDING_SIGNALS, interruptible
from stress.ending import ENDING, LAST_WORDS_S

pytestmark = pytest.mark.multi

ROOT = Path(__file__).parents[2]
# F12 breaks I10 in operation 28 of this run; without the interruption it would be told at an exchange.
COMMAND = ("run", "paged", "--set", "workload.requests=80")
FAULTY = ("--fault", "F12")
# Python imports a module of this name at its start: the ranks of both launchers have it.
AT_OPERATION = """
import os, signal, time
from pathlib import Path
import stress.operator as operator

method = operator.Operator.METHOD

def method_and_then(self, *arguments):
    result = method(self, *arguments)
    if self.number == 31:
        THEN
    return result

operator.Operator.METHOD = method_and_then
"""


def at_operation(method: str, *then: str) -> str:
    """The hook by which operation 31 does `then` at the end of this method of its operator."""
    return AT_OPERATION.replace("METHOD", method).replace("THEN", "\n        ".join(then))


END_ME = "os.kill(os.getpid(), signal.SIGTERM)"
FOR_EVER = "while True: time.sleep(0.01)"
ENDS_AT_OPERATION = at_operation(
    "_issue",
    'Path(os.environ["SEEN"]).write_text(str(len(self._probe.ledger.findings)))',
    'os.kill(int(os.environ["COORDINATOR"]), signal.SIGNAL)',
    "time.sleep(0.5)",
)
LOOPS_AT_OPERATION = at_operation("_issue", END_ME, FOR_EVER)
TARGET_HANGS = at_operation("_run", FOR_EVER)
TARGET_IS_KILLED = at_operation("_run", END_ME, FOR_EVER)
READ_HANGS = """
import time
import stress.probe.probe as probe

tell = probe.Probe._tell_counts

def tell_for_ever(self):
    tell(self)
    while self._operation.number == 31:
        time.sleep(0.01)

probe.Probe._tell_counts = tell_for_ever
"""
# Pages that come back late, and are neither there nor asked back for a while: half an operation.
HANGS_AMID_A_FREE = """
import time
from allocator.page_pool import PagePool

push, pushed = PagePool._push, []

def push_for_ever(self, *piles):
    pushed.append(1)
    while len(pushed) == 4:
        time.sleep(0.01)
    push(self, *piles)

PagePool._push = push_for_ever
"""
ENDS_IN_A_CHECK = """
import os, signal
import stress.check.shadow as shadow

turn_to, ended = shadow.Ledger._turn_to, []

def end_and_turn_to(self, event, settles):
    if settles and event.cause.operation >= 20 and not ended:
        ended.append(1)
        os.kill(os.getpid(), signal.SIGINT)
    return turn_to(self, event, settles)

shadow.Ledger._turn_to = end_and_turn_to
"""


def ended(tmp_path: Path, launcher: str, hook: str, *options: str, code: int = 130) -> dict:
    """The verdict of a run that was ended by the hook."""
    (tmp_path / "sitecustomize.py").write_text(hook)
    out = tmp_path / "run"
    command = [sys.executable, "-m", "stress", *COMMAND, "--launcher", launcher, "--out", str(out), *options]
    script = f"export COORDINATOR=$$; exec {' '.join(command)}"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "SEEN": str(tmp_path / "seen"),
    }
    done = subprocess.run(
        ["sh", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads((out / "verdict.json").read_text())


def check_told(document: dict) -> None:
    (rank,) = document["arms"]["reference"]["ranks"]
    assert rank["status"] == "stopped"
    first = rank["first_finding"]
    assert (first["rule"], first["operation"], first["page"]) == ("I10", 28, 51)
    assert document["reasons"][0] == "The run was interrupted before its end."


@pytest.mark.parametrize("launcher", ["inline", "local"])
@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_what_was_seen_and_not_checked_yet_is_told(launcher: str, signal: str, tmp_path: Path) -> None:
    document = ended(tmp_path, launcher, ENDS_AT_OPERATION.replace("SIGNAL", signal), *FAULTY)
    assert (tmp_path / "seen").read_text() == "0", "nothing had been checked when the signal came"
    check_told(document)


def test_a_signal_amid_a_check_lets_it_end(tmp_path: Path) -> None:
    check_told(ended(tmp_path, "inline", ENDS_IN_A_CHECK, *FAULTY))


def test_one_signal_ends_a_target_that_comes_to_no_other_operation(tmp_path: Path) -> None:
    started_s = time.monotonic()
    check_told(ended(tmp_path, "inline", LOOPS_AT_OPERATION, *FAULTY))
    assert time.monotonic() - started_s > LAST_WORDS_S, "it was given the time to come to one"


@pytest.mark.parametrize(
    ("hook", "why", "options"),
    [
        (
            TARGET_HANGS,
            "no sign of life for 8 s; stopped by the coordinator",
            ("--set", "deadlines.stall_s=8"),
        ),
        (READ_HANGS, "no sign of life for 8 s; stopped by the coordinator", ("--set", "deadlines.stall_s=8")),
        (TARGET_IS_KILLED, "killed by SIGTERM", ()),
    ],
    ids=["it hangs", "a read of it hangs", "somebody ends it"],
)
def test_a_rank_that_is_lost_alone_tells_what_it_had_seen(hook, why, options, tmp_path: Path) -> None:
    document = ended(tmp_path, "local", hook, *FAULTY, *options, code=1)
    (rank,) = document["arms"]["reference"]["ranks"]
    assert rank["status"] == "lost"
    first = rank["first_finding"]
    assert (first["rule"], first["operation"], first["page"]) == ("I10", 28, 51)
    assert why in " ".join(document["reasons"])


@pytest.mark.parametrize("on_finding", ["count", "stop"])
def test_half_of_an_operation_is_not_judged(on_finding: str, tmp_path: Path) -> None:
    options = ("--set", "deadlines.stall_s=8", "--set", f"check.on_finding={on_finding}")
    document = ended(tmp_path, "local", HANGS_AMID_A_FREE, *options, code=3)
    (rank,) = document["arms"]["reference"]["ranks"]
    assert (rank["status"], rank["findings"], rank["first_finding"]) == ("lost", {}, None)
    assert document["verdict"] == "unknown"


@pytest.fixture
def own_signals() -> Iterator[None]:
    """`interruptible` leaves them ignored after one has arrived: this process and its children are tests."""
    before = {each: signals.getsignal(each) for each in ENDING_SIGNALS}
    yield
    for each, handler in before.items():
        signals.signal(each, handler)


def test_nobody_asks_any_more_once_the_signals_are_over(own_signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        with ENDING.hears():
            os.kill(os.getpid(), signals.SIGTERM)
            assert ENDING.asked
    assert not ENDING.asked
    with ENDING.hears():
        pass
    assert signals.getitimer(signals.ITIMER_REAL)[0] == 0
