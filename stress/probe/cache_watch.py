"""Wraps a prefix cache's locks, by name and on the instance, and tells what each call really took and gave up.

What a call did is read off the nodes' own lock counters, on the path from the locked node to the root, before and
after it; a node that was split since is no other page. So a lock that skips a node, or an unlock that walks further
than its lock did, tells what it did and not what it meant to. O(path), and locks come with admission, checkpoint and
end alone. A lock of a component that is reached through an edge stands under that edge's target pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stress.check.event import EventKind
from stress.probe.allocator_watch import Watch

_NONE = np.empty(0, dtype=np.int64)


class CacheWatch:
    """`cache` has lock(node, holder) -> receipt, unlock(receipt) and release_swa_lock(receipt); a receipt has `serial`,
    `holder` and `node`; a node `parent`, `pages`, `full_lock` and `swa_lock`, and no parent at the root.

    `closely`: the locks of one holder in so many are told, by the holder's number.
    """

    def __init__(self, cache: Any, watch: Watch, closely: int = 1) -> None:
        self._watch = watch
        self._closely = closely
        self._full = watch.source.name
        self._component = watch.edge.target if watch.edge is not None else None
        self._wrapped = []
        for name in ("unlock", "release_swa_lock"):
            self._wrap(cache, name, self._unlocking(getattr(cache, name)))
        self._wrap(cache, "lock", self._locking(cache.lock))
        self._cache = cache

    def unwatch(self) -> None:
        """Takes the wrappers off."""
        for name in self._wrapped:
            delattr(self._cache, name)
        self._wrapped = []

    def _wrap(self, cache: Any, name: str, call: Callable) -> None:
        setattr(cache, name, call)
        self._wrapped.append(name)

    def _locking(self, inner: Callable) -> Callable:
        def lock(node, holder):
            if _number(holder) % self._closely:
                return inner(node, holder)
            before = _counters_to(node)
            receipt = inner(node, holder)
            self._tell(EventKind.LOCK, before, receipt)
            return receipt

        return lock

    def _unlocking(self, inner: Callable) -> Callable:
        def unlock(receipt):
            if _number(receipt.holder) % self._closely:
                return inner(receipt)
            before = _counters_to(receipt.node)
            try:
                return inner(receipt)
            finally:
                self._tell(EventKind.UNLOCK, before, receipt)

        return unlock

    def _tell(self, kind: EventKind, before: list[tuple[Any, int, int]], receipt: Any) -> None:
        """The pages whose counter has changed. An unlock is told also when it gave up nothing: it has ended."""
        if not before:
            return
        watch, ended = self._watch, kind is EventKind.UNLOCK and not receipt.held
        watch.call += 1
        watch.take_cause()
        told = [(self._full, [node.pages for node, full, _ in before if node.full_lock != full])]
        if self._component is not None:
            runs = [node.pages for node, _, component in before if node.swa_lock != component]
            told.insert(kind is EventKind.LOCK, (self._component, runs))
        holder = _words(receipt.holder)
        for pool, runs in told:
            if runs or ended:
                pages = runs[0] if len(runs) == 1 else np.concatenate(runs) if runs else _NONE
                watch.tell(kind, pool, pages, None, holder, token=receipt.serial)


def _counters_to(node: Any) -> list[tuple[Any, int, int]]:
    """(node, its FULL locks, its SWA locks) from below the root down to `node`."""
    path = []
    while node.parent is not None:
        path.append((node, node.full_lock, node.swa_lock))
        node = node.parent
    path.reverse()
    return path


def _number(holder: Any) -> int:
    return holder[1] if isinstance(holder, tuple) else holder


def _words(holder: Any) -> str:
    """`request 4`, `offload 17`: a holder is a request's id, or what holds and its number."""
    return f"{holder[0]} {holder[1]}" if isinstance(holder, tuple) else f"request {holder}"
