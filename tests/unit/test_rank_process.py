"""Settings of a process that runs nothing but ranks."""

from __future__ import annotations

import subprocess
import sys

SETTLED = """
import gc
import torch
from stress.launch.rank_process import settle_process
settle_process()
cycle = [[]]
cycle[0].append(cycle)
del cycle
print(gc.get_threshold(), torch.get_num_threads(), gc.collect() >= 2)
"""


def test_a_settled_process_looks_for_cycles_seldom_but_still_finds_them():
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(20000, 20, 20) 1 True"
