"""Real vLLM trees for the tests: releases, fetched once into the cache of targets.

$KVSTRESS_VLLM_TREES names a folder of unzipped wheels, x-vllm-VERSION each, to be taken in place of fetched ones.
A test is skipped, naming what is missing, where a tree can't be had or a package of the extra `vllm` isn't installed.
"""

import importlib.util
import os
from pathlib import Path

import pytest

from stress.engine.vllm.tree_finder import NEEDED
from stress.target import TargetError, TargetUnavailable, resolve


@pytest.fixture(scope="session")
def vllm_tree():
    """A function of a version: the folder that holds that release's `vllm/`."""
    return _tree


def _tree(version: str) -> Path:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (kvstress[vllm])")
    if kept := os.environ.get("KVSTRESS_VLLM_TREES"):
        folder = Path(kept) / f"x-vllm-{version}"
        return folder if folder.is_dir() else pytest.skip(f"{folder}: no such folder ($KVSTRESS_VLLM_TREES)")
    try:
        return resolve(f"vllm=={version}")
    except (TargetError, TargetUnavailable) as error:
        pytest.skip(str(error))
