"""The reaper ends marked processes and their descendants, whatever these did to their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import is_alive

from stress.launch.reaper import LOOK_S, MARK, Family, Reaper

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc (Linux)")

# A marked parent whose child has lost the mark; the child's pid is printed, then both sleep.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={}, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


def start_parent(mark: str) -> tuple[subprocess.Popen, int]:
    environment = {**os.environ, MARK: mark}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def test_close_ends_the_marked_and_their_children_only() -> None:
    reaper = Reaper()
    parent, child = start_parent(reaper.mark)
    other, other_child = start_parent("another")
    try:
        reaper.close()
        assert parent.wait(10) == -9
        assert not is_alive(child)
        assert other.poll() is None
        assert is_alive(other_child)
        reaper.close()
    finally:
        os.kill(other_child, 9)
        for process in (parent, other):
            process.kill()
            process.communicate()


def test_a_child_that_lost_both_mark_and_parent_is_remembered() -> None:
    reaper = Reaper()
    parent, child = start_parent(reaper.mark)
    time.sleep(2 * LOOK_S)  # the reaper has looked at them
    parent.kill()
    parent.communicate()
    assert is_alive(child)
    reaper.close()
    assert not is_alive(child)


def test_the_dead_are_forgotten() -> None:
    parent, child = start_parent("forgotten")
    family = Family("forgotten")
    assert family.look() == sorted([parent.pid, child])
    os.kill(child, 9)
    parent.communicate()
    assert family.look() == []
