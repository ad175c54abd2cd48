"""What vLLM's KV-cache management asks of torch: element types, and how many bytes one has.

A tree only carries a dtype in its specs and multiplies by its size. Importing torch for that costs seconds and half a
gigabyte a rank. Anything else of torch is a stand-in that refuses to answer.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stress.engine.stand_in import StandInModule

ITEM_SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "complex64": 8,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
_OTHER_NAMES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}


class ElementType:
    """Stands for a torch.dtype: `itemsize` is its size in bytes."""

    def __init__(self, name: str, itemsize: int) -> None:
        self._name = name
        self.itemsize = itemsize

    def __repr__(self) -> str:
        return f"torch.{self._name}"


class EmptyTensor:
    """`torch.tensor([], dtype=d)`, which a tree makes to ask for its element's size."""

    def __init__(self, data: Any, dtype: ElementType) -> None:
        if len(data):
            raise NotImplementedError(f"a tensor of {len(data)} elements: a tree has no memory here")
        self.dtype = dtype

    def element_size(self) -> int:
        return self.dtype.itemsize


def torch_substitute(cure: str) -> ModuleType:
    """A module `torch` with the element types, to be given to the modules of one tree."""
    torch = StandInModule("torch", cure, {})
    torch.dtype = ElementType
    torch.tensor = torch.Tensor = EmptyTensor
    for name, size in ITEM_SIZES.items():
        setattr(torch, name, ElementType(name, size))
    for other, name in _OTHER_NAMES.items():
        setattr(torch, other, getattr(torch, name))
    return torch
