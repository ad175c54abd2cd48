"""Stamp arrays where the pool is: numpy on a host, tensors on a device. An index out of range is brought into it.

On a device nothing here waits: shapes depend on host numbers only, so no masks, nonzero or unique.
"""

from __future__ import annotations

import numpy as np
import torch

from stress.check.masks import any_of

Array = np.ndarray | torch.Tensor


class HostArrays:
    """For tensors in host memory, by their numpy views."""

    waits = False

    def __init__(self) -> None:
        self._mapping: torch.Tensor | None = None
        self._address = 0
        self._cells = memoryview(b"")

    def full(self, shape: tuple[int, ...], value: int) -> np.ndarray:
        return np.full(shape, value, dtype=np.int64)

    def place(self, column: np.ndarray) -> np.ndarray:
        return column

    def take(self, array: np.ndarray, index: np.ndarray) -> np.ndarray:
        return array.take(index, mode="clip")

    def put(self, array: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
        """array[index] = values; of equal indices the last one counts."""
        array.put(index, values, mode="clip")

    def fill(self, array: np.ndarray, index: np.ndarray | list[int], value: int) -> None:
        """`value` into the whole rows `index` of `array`."""
        try:
            array[index] = value
        except IndexError:
            array[np.clip(index, 0, len(array) - 1)] = value

    def rows(self, array: np.ndarray, index: np.ndarray) -> np.ndarray:
        """A copy of the rows `index` of a two-dimensional array."""
        return array.take(index, axis=0, mode="clip")

    def translate(self, mapping: torch.Tensor, slots: np.ndarray) -> np.ndarray:
        return mapping.detach().numpy().take(slots, mode="clip").astype(np.int64, copy=False)

    def entries(self, mapping: torch.Tensor, slots: list[int]) -> list[int]:
        """What the mapping says at few slots; IndexError where it has no such slot."""
        cells = self.cells(mapping)
        return [cells[slot] for slot in slots]

    def cells(self, mapping: torch.Tensor) -> memoryview:
        """The mapping, slot by slot; the view of the one that was asked for last is kept."""
        if mapping is not self._mapping or mapping.data_ptr() != self._address:
            self._mapping, self._address = mapping, mapping.data_ptr()
            self._cells = memoryview(mapping.detach().numpy())
        return self._cells

    def any_wrong(self, wrong: np.ndarray) -> bool:
        """Whether it is worth a look: on a host a clean comparison ends here."""
        return any_of(wrong)

    def first(self, wrong: np.ndarray) -> np.ndarray:
        """int64[1]: place of the first True."""
        return wrong.argmax(keepdims=True)

    def count(self, wrong: np.ndarray) -> np.ndarray:
        """int64[1]: how many are True."""
        return np.array([np.count_nonzero(wrong)])

    def join(self, *columns: np.ndarray) -> np.ndarray:
        return np.concatenate(columns)


class DeviceArrays:
    """For tensors of a CUDA or ROCm device; also correct on a host's."""

    waits = True

    def __init__(self, device: torch.device | str) -> None:
        self._device = device

    def full(self, shape: tuple[int, ...], value: int) -> torch.Tensor:
        return torch.full(shape, value, dtype=torch.int64, device=self._device)

    def place(self, column: Array) -> torch.Tensor:
        if isinstance(column, torch.Tensor):
            return column
        return torch.from_numpy(np.ascontiguousarray(column, dtype=np.int64)).to(
            self._device, non_blocking=True
        )

    def take(self, array: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return array.view(-1)[index.clamp(0, array.numel() - 1)]

    def put(self, array: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> None:
        array.view(-1)[index.clamp(0, array.numel() - 1)] = values

    def fill(self, array: torch.Tensor, index: torch.Tensor, value: int) -> None:
        array.index_fill_(0, index.clamp(0, len(array) - 1), value)

    def rows(self, array: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return array[index.clamp(0, len(array) - 1)]

    def translate(self, mapping: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return self.take(mapping.detach(), slots).to(torch.int64)

    def any_wrong(self, wrong: torch.Tensor) -> bool:
        return True

    def first(self, wrong: torch.Tensor) -> torch.Tensor:
        return wrong.to(torch.int8).argmax().view(1)

    def count(self, wrong: torch.Tensor) -> torch.Tensor:
        return wrong.sum().view(1)

    def join(self, *columns: torch.Tensor) -> torch.Tensor:
        return torch.cat(columns)


def arrays_for(device: torch.device | str) -> HostArrays | DeviceArrays:
    """The arrays for a pool on `device`."""
    return HostArrays() if torch.device(device).type == "cpu" else DeviceArrays(device)
