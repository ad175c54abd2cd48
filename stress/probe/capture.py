"""How page ids leave the target's tensors: copied at once on a CPU, without a wait on a GPU.

A column is a one-dimensional array of ids: a numpy array with `HostReader`, or a list where they are FEW (a numpy call
on one page costs more than the page); a device tensor with `DeviceReader`. All are copies, for the target writes to
its buffers again. `DeviceReader.send` starts a copy to pinned memory and `land` reads it later, after the stream was
synchronised by whoever does so anyway: nothing here waits for the device, so shapes may depend on host numbers only.
That forbids unique, nonzero and masks: what needs them is done by `land` on the host.
"""

from __future__ import annotations

import numpy as np
import torch

from stress.probe.lent_pages import segment_parts

Column = np.ndarray | list | torch.Tensor
FEW = 16
_ALL = slice(None)


class HostReader:
    """For tensors in host memory. Keeps a view of the mapping that it read last, and of no other buffer."""

    waits = False

    def __init__(self) -> None:
        self._mapping: torch.Tensor | None = None
        self._address = 0
        self._entries = np.empty(0, dtype=np.int64)
        self._cells = memoryview(self._entries)

    def slots(self, tensor: torch.Tensor, where: slice | np.ndarray | list = _ALL) -> np.ndarray:
        """int64 copy of the slots at host positions `where`."""
        return tensor.detach().numpy()[where].astype(np.int64)

    def pages(self, tensor: torch.Tensor, where: slice | np.ndarray | list, size: int) -> Column:
        """The pages of `size` slots in which the slots at host positions `where` lie."""
        slots = tensor.numpy()  # ids are integers: there is no gradient to leave behind
        if type(where) is list and len(where) <= FEW:
            return [slots.item(at) // size for at in where]
        slots = slots[where]
        if len(slots) <= FEW:
            few = slots.tolist()
            return few if size == 1 else [slot // size for slot in few]
        return slots.astype(np.int64, copy=False) // size

    def segment(self, tensor: torch.Tensor, start_pos: int, size: int) -> Column:
        """One slot a page of `size` of a segment whose first token is at `start_pos`."""
        slots = tensor.numpy()
        rest = -start_pos % size
        first_of_each = slots[rest::size]
        if len(first_of_each) < FEW:
            return [slots.item(0), *first_of_each.tolist()] if rest else first_of_each.tolist()
        if rest:
            return np.concatenate((slots[:1], first_of_each)).astype(np.int64, copy=False)
        return first_of_each.astype(np.int64)

    def entries(self, mapping: torch.Tensor, slots: Column) -> Column:
        """The mapping's entries at slots [k]: int64[k], or a list."""
        if mapping is not self._mapping or mapping.data_ptr() != self._address:
            self._mapping, self._address = mapping, mapping.data_ptr()
            self._entries = mapping.detach().numpy()
            self._cells = memoryview(self._entries)
        if type(slots) is list:
            cells = self._cells
            return [cells[slot] for slot in slots]
        return self._entries[slots].astype(np.int64, copy=False)

    def between(self, first: int, end: int, device) -> np.ndarray:
        """Ids first .. end - 1."""
        return np.arange(first, end)

    def join(self, columns: list[Column]) -> Column:
        if len(columns) == 1:
            return columns[0]
        if all(type(column) is list for column in columns):
            return [page for column in columns for page in column]
        return np.concatenate([np.asarray(column, dtype=np.int64) for column in columns])

    def send(self, column: np.ndarray) -> np.ndarray:
        return column

    def land(self, column: np.ndarray) -> np.ndarray:
        return column


class DeviceReader:
    """For tensors of a CUDA or ROCm device. Also correct, and as lazy, on host tensors."""

    waits = True

    def slots(self, tensor: torch.Tensor, where: slice | np.ndarray | list = _ALL) -> torch.Tensor:
        if not isinstance(where, slice):
            at = torch.from_numpy(np.asarray(where, dtype=np.int64)).to(tensor.device, non_blocking=True)
            return tensor.detach().index_select(0, at).to(torch.int64)
        return tensor.detach()[where].to(torch.int64, copy=True)

    def pages(self, tensor: torch.Tensor, where: slice | np.ndarray | list, size: int) -> torch.Tensor:
        slots = self.slots(tensor, where)
        return slots if size == 1 else slots // size

    def segment(self, tensor: torch.Tensor, start_pos: int, size: int) -> torch.Tensor:
        return self.join([self.slots(tensor, part) for part in segment_parts(start_pos, size)])

    def entries(self, mapping: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return mapping.detach().index_select(0, slots).to(torch.int64)

    def between(self, first: int, end: int, device) -> torch.Tensor:
        return torch.arange(first, end, device=device)

    def join(self, columns: list[torch.Tensor]) -> torch.Tensor:
        return columns[0] if len(columns) == 1 else torch.cat(columns)

    def send(self, column: Column) -> torch.Tensor:
        """Starts the copy to the host and returns its buffer."""
        if not isinstance(column, torch.Tensor):
            return torch.from_numpy(np.asarray(column, dtype=np.int64))
        buffer = torch.empty(column.shape, dtype=torch.int64, pin_memory=column.is_cuda)
        buffer.copy_(column, non_blocking=True)
        return buffer

    def land(self, column: torch.Tensor) -> np.ndarray:
        """The buffer's ids. The stream must have been synchronised since `send`."""
        return column.numpy()


def reader_for(device: torch.device | str) -> HostReader | DeviceReader:
    """The reader for a target whose tensors lie on `device`."""
    return HostReader() if torch.device(device).type == "cpu" else DeviceReader()
