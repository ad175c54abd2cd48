"""`python -m stress.doctor.torch_answers`: what torch says of itself, in a process that may die of it.

Prints one JSON object as its last line. The devices are asked for, nothing is put on them. Under "gloo" stands ""
where a group of one rank was formed on loopback and exchanged, else why not.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import torch

from stress.launch.contract import LOOPBACK
from stress.launch.exchange import GroupExchange, open_store

TIMEOUT_S = 20.0


def answers() -> dict[str, Any]:
    """Version, what it was built for, the devices that it sees, and whether gloo works."""
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "available": torch.cuda.is_available(),
        "devices": _devices(),
        "gloo": _gloo(),
    }


def _devices() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [
        {"name": device.name, "memory_gib": round(device.total_memory / (1 << 30), 1)} for device in found
    ]


def _gloo() -> str:
    try:
        store, _port = open_store(LOOPBACK, TIMEOUT_S)
        group = GroupExchange(0, 1, store, host=LOOPBACK, timeout_s=TIMEOUT_S, lost=lambda _peers: False)
        heard = group.exchange(b"doctor")
        group.leave()
    except (RuntimeError, OSError, ValueError) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return "" if heard == [b"doctor"] else f"sent doctor, heard {heard}"


if __name__ == "__main__":
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(answers()) + b"\n")
    sys.stdout.flush()
    os._exit(0)  # a driver that hangs at exit has answered already
