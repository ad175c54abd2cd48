"""One physical KV pool of a server, page by page: rows of its buffers out to host memory and back.

A pool has buffers for some layers; a page is `rows_a_page` consecutive rows of each of them. Buffers are moved as
bytes, so no type needs arithmetic. Nothing here waits for a device: work goes to the current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

PageBlock = dict[tuple[str, int], list[torch.Tensor]]
"""(physical pool, layer) -> its buffers' rows, uint8[n * rows_a_page, ...], of the n pages of one transfer."""


class DevicePages:
    """`source`: whose slot indices address the pool (kv, swa, ...). `page_slots`: slots of that pool a page.

    Raises ValueError if a buffer is not laid out in rows of whole elements.
    """

    def __init__(
        self,
        name: str,
        source: str,
        layers: Mapping[int, Sequence[torch.Tensor]],
        *,
        page_slots: int,
        rows_a_page: int,
        translate: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self.layers = {layer: [_bytes(name, buffer) for buffer in group] for layer, group in layers.items()}
        self.device = next(iter(self.layers.values()))[0].device
        self._page_slots = page_slots
        self._span = torch.arange(rows_a_page, device=self.device)
        self._translate = translate

    @property
    def rows_a_page(self) -> int:
        return len(self._span)

    def rows(self, slots: torch.Tensor) -> torch.Tensor:
        """Slots of whole pages, in order, int64[n * page_slots] -> rows int64[n * rows_a_page], no sync."""
        if self._translate is not None:
            slots = self._translate(slots)
        pages = slots.to(self.device)[:: self._page_slots] // self._page_slots
        return (pages[:, None] * len(self._span) + self._span).flatten()

    def read(self, layer: int, rows: torch.Tensor) -> list[torch.Tensor]:
        """The rows of the layer's buffers, copied on the device; nothing where the pool lacks the layer."""
        return [buffer.index_select(0, rows) for buffer in self.layers.get(layer, ())]

    def write(self, layer: int, rows: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Puts host parts (as `read` gave them) into rows of the layer's buffers."""
        for buffer, part in zip(self.layers.get(layer, ()), parts, strict=True):
            buffer.index_copy_(0, rows, part.to(self.device, non_blocking=True))


def rows_a_page(name: str, buffer: torch.Tensor, slots: int, page_size: int) -> int:
    """1 or page_size: whether a buffer of `slots` slots has a row a page or a row a slot. ValueError if neither."""
    if buffer.shape[0] == slots:
        return page_size
    if buffer.shape[0] * page_size == slots:
        return 1
    raise ValueError(
        f"pool {name}: a buffer of {buffer.shape[0]} rows for {slots} slots in pages of {page_size} "
        "has neither a row a slot nor a row a page; use the server's default KV cache layout"
    )


def _bytes(name: str, buffer: torch.Tensor) -> torch.Tensor:
    if buffer.dim() < 2 or buffer.stride(-1) != 1:
        raise ValueError(
            f"pool {name}: a buffer of shape {tuple(buffer.shape)}, strides {buffer.stride()} is not laid out "
            "in rows; use the server's default KV cache layout"
        )
    return buffer.view(torch.uint8)


def host_block(parts: list[tuple[DevicePages, torch.Tensor]], *, pinned: bool) -> PageBlock | None:
    """The rows' content in host memory, one allocation; None if the pool has no tensors."""
    if not parts:
        return None
    block, host_parts = {}, []
    for pages, rows in parts:
        for layer in pages.layers:
            block[pages.name, layer] = pages.read(layer, rows)
            host_parts += block[pages.name, layer]
    host = torch.empty(sum(part.nbytes for part in host_parts), dtype=torch.uint8, pin_memory=pinned)
    taken = 0
    for key, device_parts in block.items():
        block[key] = []
        for part in device_parts:
            view = host[taken : taken + part.nbytes].view(part.shape)
            view.copy_(part, non_blocking=True)
            taken += part.nbytes
            block[key].append(view)
    return block
