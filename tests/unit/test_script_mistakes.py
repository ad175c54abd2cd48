"""Mistakes on the command line of scripts that run seeds: exit 2, one line with the cure, nothing is run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from stress.seed_range import seed_range

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MISTAKES = [
    ("fault_seeds", "--seeds a-b", "seeds 'a-b': are no numbers; write 7 or 1-20"),
    ("fault_seeds", "--seeds 9-1", "seeds '9-1': there is none; write the smaller one first"),
    ("fault_seeds", "--fault F99", "--fault F99: unknown fault; the faults are F01, F02"),
    ("fault_seeds", "--arm petched", "--arm petched: smoke has no such arm; choose unpatched, patched"),
    ("fault_seeds", "--config smok", "choose "),
    ("swarm_seeds", "--seeds -3", "seeds '-3': are no numbers"),
    ("swarm_seeds", "--operations 0", "--operations, --jobs: are numbers from 1 on"),
    ("swarm_seeds", "--jobs 0", "--operations, --jobs: are numbers from 1 on"),
    ("swarm_seeds", "--target sgl", "there is reference"),
]


@pytest.mark.parametrize(("name", "given", "cure"), MISTAKES, ids=lambda value: str(value)[:24])
def test_a_mistake_is_one_line_on_stderr(name, given, cure, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ProcessPoolExecutor", None)
    flag, value = given.split()
    monkeypatch.setattr(sys, "argv", [name, f"{flag}={value}"])
    assert script.main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith(f"{name}: ")
    assert cure in printed.err


def test_a_range_of_seeds_has_both_its_ends():
    assert [list(seed_range(text)) for text in ("7", "2-4")] == [[7], [2, 3, 4]]
