"""Loads of one batch into the device pools, layer by layer, behind upstream's layer counter.

A batch is copied once, in layer order, on a stream of its own, after what the current stream had queued when the
batch was started. A forward that reaches a layer makes its stream wait for that layer's copy alone. A batch that
is delayed is copied by whoever first needs it, after its time: no thread, and no copy that comes too early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from linker.device_pages import DevicePages
from linker.faults import TransferFault
from linker.host_pages import Run


class PoolLoad(NamedTuple):
    """Pages of one pool of one load: the rows that they go to, and where their bytes lie."""

    pages: DevicePages
    rows: torch.Tensor
    runs: Sequence[Run]


class LoadBatch:
    """`ready_s`: time.monotonic() before which nothing is copied. `landed`: whether every load will be whole."""

    def __init__(
        self, loads: Sequence[PoolLoad], layers: int, ready_s: float, landed: bool, stream: Any
    ) -> None:
        self._loads = loads
        self._layers = layers
        self._ready_s = ready_s
        self._landed = landed
        self._stream = stream
        self._copied = False
        self._events: list[Any] = []
        self._started = None
        if stream is not None:
            self._started = torch.get_device_module(stream.device).Event()
            self._started.record()

    def copy(self) -> None:
        """Queues every layer's copy, once; waits for the batch's time first."""
        if self._copied:
            return
        self._copied = True
        time.sleep(max(0.0, self._ready_s - time.monotonic()))
        if self._stream is None:
            for layer in range(self._layers):
                self._copy_layer(layer)
            return
        module = torch.get_device_module(self._stream.device)
        with module.stream(self._stream):
            self._stream.wait_event(self._started)
            for layer in range(self._layers):
                self._copy_layer(layer)
                self._events.append(module.Event())
                self._events[-1].record()

    def wait_layer(self, layer: int) -> None:
        """The current stream continues when the layer is in place."""
        self.copy()
        if self._events:
            module = torch.get_device_module(self._stream.device)
            module.current_stream(self._stream.device).wait_event(self._events[layer])

    def finish(self) -> bool:
        """Waits for all copies; whether every load is whole."""
        self.copy()
        if self._events:
            self._events[-1].synchronize()
        return self._landed

    def _copy_layer(self, layer: int) -> None:
        for load in self._loads:
            size = load.pages.rows_a_page
            for run in load.runs:
                parts = [
                    part[run.position * size : (run.position + run.stop - run.start) * size]
                    for part in run.block.get((load.pages.name, layer), ())
                ]
                load.pages.write(layer, load.rows[run.start * size : run.stop * size], parts)


class LayerGate:
    """What KV pools ask before they read a layer: upstream's `layer_done_counter`."""

    def __init__(self, batch_of: Callable[[int], LoadBatch | None], num_layers: int) -> None:
        self.num_layers = num_layers
        self.consumer_index = -1
        self._batch_of = batch_of

    def set_consumer(self, index: int) -> None:
        """The next forward reads what batch `index` loads; -1: no load."""
        self.consumer_index = index

    def wait_until(self, layer: int) -> None:
        """`layer` counts from the first of this stage; returns at once if the batch has been finished."""
        batch = self._batch_of(self.consumer_index)
        if batch is not None:
            batch.wait_layer(layer)


def reduced_loads(loads: list[PoolLoad], fault: TransferFault | None) -> list[PoolLoad]:
    """What of a load is copied: all, the first half of each pool's pages, or nothing."""
    if fault is None or fault.kind == "late":
        return loads
    if fault.kind != "short":
        return []
    cut = []
    for load in loads:
        half = load.runs[-1].stop // 2
        runs = [run._replace(stop=min(run.stop, half)) for run in load.runs if run.start < half]
        cut.append(load._replace(runs=runs))
    return cut
