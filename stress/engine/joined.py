"""Which requests have been part of a batch: a fault of an abort before that goes by it, on any engine with `extend`."""

from __future__ import annotations


class Joined:
    """Mixed in ahead of an engine. `_joined`: requests that have been part of a batch."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._joined: set[int] = set()

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        self._joined.update(rid for rid, _ in rows)
        return super().extend(rows)
