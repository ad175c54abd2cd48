"""Real vLLM trees for the tests: releases in the cache of targets.

A wheel is 240 MB and more, so the suite fetches one release alone; the tests of others run where somebody has added
them. A test is skipped, naming what is missing, where a tree can't be had or a package of the extra `vllm` is not
installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stress.engine.vllm.tree_finder import NEEDED
from stress.target import TargetUnavailable, list_targets, resolve

# Of those that are looked at, the one whose faults are known.
FETCHED = "0.20.2"


@pytest.fixture(scope="session")
def vllm_tree():
    """A function of a version: the folder that holds that release's `vllm/`."""
    return _tree


@pytest.fixture
def ask(vllm_tree):
    """A function of a script, a version and the script's further arguments: the document that it prints."""

    def run(name, version, *arguments, hash_seed="0"):
        script = Path(__file__).with_name(name)
        command = [sys.executable, "-W", "ignore", str(script), str(vllm_tree(version)), *arguments]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def _tree(version: str) -> Path:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (kvstress[vllm])")
    target = f"vllm=={version}"
    if version != FETCHED and target not in _kept():
        pytest.skip(f"not in the cache of targets: kvstress target add {target}")
    try:
        return resolve(target)
    except TargetUnavailable as error:
        pytest.skip(str(error))


@cache
def _kept() -> set[str]:
    """The targets in the cache, asked once: the list measures every tree, which takes seconds."""
    return {kept.record.target for kept in list_targets()}
