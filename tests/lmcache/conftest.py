"""Real LMCache trees for the tests: a release, fetched once into the cache of targets, and a copy of it with an edit.

A test is skipped, naming what is missing, where the release can't be had.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stress.target import TargetError, TargetUnavailable, resolve

VERSION = "0.5.6"


@pytest.fixture(scope="session")
def lmcache_tree() -> Path:
    """The folder that holds the release's `lmcache/`."""
    try:
        return resolve(f"lmcache=={VERSION}")
    except (TargetError, TargetUnavailable) as error:
        pytest.skip(str(error))


@pytest.fixture
def guarded_tree(lmcache_tree, tmp_path) -> Path:
    """A copy whose pages refuse a reference that nobody has, instead of freeing once more."""
    own = tmp_path / "tree" / "lmcache" / "v1"
    own.mkdir(parents=True)
    for above, below in ((lmcache_tree / "lmcache", own.parent), (lmcache_tree / "lmcache" / "v1", own)):
        for part in above.iterdir():
            if part.name not in ("v1", "memory_management.py", "__pycache__"):
                (below / part.name).symlink_to(part)
    source = (lmcache_tree / "lmcache" / "v1" / "memory_management.py").read_text()
    count_down = source.index("    def ref_count_down", source.index("class TensorMemoryObj"))
    head, set_to_zero, rest = source[count_down:].partition("self.meta.ref_count = 0\n")
    assert set_to_zero, "the release does not set a count below zero to zero"
    edited = source[:count_down] + head + set_to_zero + "                return\n" + rest
    (own / "memory_management.py").write_text(edited)
    return own.parents[1]


@pytest.fixture(scope="session")
def answer():
    """A function of a script's name and its arguments: the JSON that it prints, in a process of its own, asked once."""

    @cache
    def ask(script: str, *arguments: object) -> dict:
        command = [
            sys.executable,
            "-W",
            "ignore",
            str(Path(__file__).with_name(script)),
            *map(str, arguments),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask
