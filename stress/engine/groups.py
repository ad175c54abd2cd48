"""What an engine says besides the contract where the layers of a model have a table a group, in one pool of pages.

A page belongs to one group of one request, or is shared by count among requests that have the same prefix there.
`observes` of such an engine has `references`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Group(NamedTuple):
    """`page_size` in tokens. `window`: tokens that a position sees, its own among them; 0: all before it. `chunk`:
    positions see what is in their own chunk of that many tokens; 0: no chunks."""

    name: str
    page_size: int
    window: int = 0
    chunk: int = 0

    def reads_from(self, tokens: int) -> int:
        """The first of `tokens` computed positions that the next one sees."""
        if self.window:
            return max(0, tokens - self.window + 1)
        return tokens // self.chunk * self.chunk if self.chunk else 0

    @property
    def sees_all(self) -> bool:
        """Whether a hole in a table of it is one that will be read."""
        return not (self.window or self.chunk)


class GroupedEngine(Protocol):
    """What the probe reads. `pools` has one pool, `edges` none."""

    groups: tuple[Group, ...]
    changed: list[
        int
    ]  # requests, besides an operation's own, whose tables it has changed; the probe empties it

    def group_table(self, rid: int, group: str, first: int = 0, end: int | None = None) -> list[int]:
        """Page ids of a request in a group at places [first, end), null where there is none; [] when it holds none."""

    def committed(self, rid: int) -> int:
        """Positions of the request that hold a token; 0 when it holds nothing."""

    def pages_short(self, rid: int, upto: int) -> int:
        """Pages, of all groups, that slots up to position `upto` would need besides what the request has."""

    def counts(self) -> dict[str, tuple[int, int, int, int]]: ...
