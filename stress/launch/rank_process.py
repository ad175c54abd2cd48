"""What a process does that runs nothing but ranks: settings that cost the others nothing and each operation less."""

from __future__ import annotations

import gc

import torch

# An operation makes some dozens of objects that refer to each other and hardly ever a cycle, so looking for cycles
# every 700 objects, as Python does, finds nothing, over and over.
_YOUNG = 20_000
_OLDER = 20


def settle_process() -> None:
    """One thread for torch, and a look for cycles now and then."""
    torch.set_num_threads(1)
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)
