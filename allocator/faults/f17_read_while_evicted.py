"""F17: pages go while a transfer still reads them (sgl-project/sglang#31427, vllm-project/vllm#52360).

TensorRT-LLM#12542 too. A store of a node is queued, its request is preempted or ends, the pages go to another one,
whose KV the store then saves under the first one's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from allocator.faults.log import FaultLog
from allocator.prefix_node import Evicted, Lock, PrefixNode


class ReadWhileEvicted:
    """Overrides a PrefixCache: an eviction that comes short takes what nothing holds but the pin of a store."""

    faults: FaultLog

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._let_go: set[int] = set()  # receipts of such pins

    def evict_full(self, need_pages: int) -> Iterator[Evicted]:
        pinned_leaf = lambda node: node.full_lock == 1 and not node.children  # noqa: E731
        return self._evict(super().evict_full, pinned_leaf, need_pages)

    def evict_swa(self, need_pages: int) -> Iterator[Evicted]:
        return self._evict(super().evict_swa, lambda node: node.swa_live and node.swa_lock == 1, need_pages)

    def unlock(self, receipt: Lock) -> None:
        if receipt.serial in self._let_go:
            self._let_go.remove(receipt.serial)
        else:
            super().unlock(receipt)

    def _evict(
        self, correct: Callable, is_pinned: Callable[[PrefixNode], bool], need_pages: int
    ) -> Iterator[Evicted]:
        while True:
            for victim in correct(need_pages):
                need_pages -= len(victim.pages)
                yield victim
            pin = self._pin_of_a_store(is_pinned) if need_pages > 0 else None
            if pin is None or not self.faults.acts("F17"):
                return
            super().unlock(pin)
            self._let_go.add(pin.serial)
            gone = not (pin.node.children or pin.node.full_lock)
            victim = self._remove_leaf(pin.node) if gone else self._tombstone(pin.node)
            need_pages -= len(victim.pages)
            yield victim

    def _pin_of_a_store(self, is_pinned: Callable[[PrefixNode], bool]) -> Lock | None:
        """The oldest pin of a store that is all that keeps its node."""
        for holder, receipts in self.holders.items():
            if type(holder) is tuple and holder[0] == "offload":
                for receipt in receipts.values():
                    if is_pinned(receipt.node):
                        return receipt
        return None
