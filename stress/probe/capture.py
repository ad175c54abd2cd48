"""How page ids leave the target's tensors: copied at once on a CPU, without a wait on a GPU.

A column is a one-dimensional array of ids: a numpy array with `HostReader`, a device tensor with `DeviceReader`. Both
are copies, for the target writes to its buffers again; both take `//` and `*`. `DeviceReader.send` starts a copy to
pinned memory and `land` reads it later, after the stream was synchronised by whoever does so anyway: nothing here
waits for the device, so shapes may depend on host numbers only. That forbids unique, nonzero and masks: what needs
them is done by `land` on the host.
"""

from __future__ import annotations

import numpy as np
import torch

Column = np.ndarray | torch.Tensor


class HostReader:
    """For tensors in host memory."""

    waits = False

    def slots(self, tensor: torch.Tensor, where: slice | np.ndarray = slice(None)) -> np.ndarray:
        """int64 copy of the slots at host positions `where`."""
        return tensor.detach().numpy()[where].astype(np.int64)

    def entries(self, mapping: torch.Tensor, slots: np.ndarray) -> np.ndarray:
        """The mapping's entries at slots [k]: int64[k]."""
        return mapping.detach().numpy()[slots].astype(np.int64, copy=False)

    def between(self, first: int, end: int, device) -> np.ndarray:
        """Ids first .. end - 1."""
        return np.arange(first, end)

    def join(self, columns: list[np.ndarray]) -> np.ndarray:
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def send(self, column: np.ndarray) -> np.ndarray:
        return column

    def land(self, column: np.ndarray) -> np.ndarray:
        return column


class DeviceReader:
    """For tensors of a CUDA or ROCm device. Also correct, and as lazy, on host tensors."""

    waits = True

    def slots(self, tensor: torch.Tensor, where: slice | np.ndarray = slice(None)) -> torch.Tensor:
        if isinstance(where, np.ndarray):
            at = torch.from_numpy(where).to(tensor.device, non_blocking=True)
            return tensor.detach().index_select(0, at).to(torch.int64)
        return tensor.detach()[where].to(torch.int64, copy=True)

    def entries(self, mapping: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return mapping.detach().index_select(0, slots).to(torch.int64)

    def between(self, first: int, end: int, device) -> torch.Tensor:
        return torch.arange(first, end, device=device)

    def join(self, columns: list[torch.Tensor]) -> torch.Tensor:
        return columns[0] if len(columns) == 1 else torch.cat(columns)

    def send(self, column: Column) -> torch.Tensor:
        """Starts the copy to the host and returns its buffer."""
        if isinstance(column, np.ndarray):
            return torch.from_numpy(column)
        buffer = torch.empty(column.shape, dtype=torch.int64, pin_memory=column.is_cuda)
        buffer.copy_(column, non_blocking=True)
        return buffer

    def land(self, column: torch.Tensor) -> np.ndarray:
        """The buffer's ids. The stream must have been synchronised since `send`."""
        return column.numpy()


def reader_for(device: torch.device | str) -> HostReader | DeviceReader:
    """The reader for a target whose tensors lie on `device`."""
    return HostReader() if torch.device(device).type == "cpu" else DeviceReader()
