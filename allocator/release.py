"""How SWA page ids are released when a segment free met entries without a peer.

A segment free reads one map entry a page; an entry without a peer reads 0 and becomes page 0, the padding.
A strategy says where those zeros are dropped. A boolean index costs a device-to-host sync, since the result's
length must be known:                       per call   per free group of n calls   correct
    unpatched          (sglang#38159)          0                 0                  no: page 0 is freed
    filter-per-call    (sglang#38519)          1                 n                  yes
    filter-per-group   (its follow-up)         1                 1                  yes
Strategies are stateless. Add one by name to RELEASE_STRATEGIES.
"""

from __future__ import annotations

import torch

from allocator.contract import ReleaseStrategy


def _concatenate(runs: list[torch.Tensor]) -> torch.Tensor:
    return runs[0] if len(runs) == 1 else torch.cat(runs)


def _drop_padding(pages: torch.Tensor) -> torch.Tensor:
    """Without page 0, order kept. One device-to-host sync."""
    return pages[pages > 0]


class Unpatched:
    """Trusts the caller: 0 syncs per call and per group; each representative without a peer frees page 0."""

    name = "unpatched"

    def enqueue(self, pages: torch.Tensor) -> torch.Tensor:
        """Keeps all: int64[k] -> int64[k]."""
        return pages

    def flush(self, runs: list[torch.Tensor]) -> torch.Tensor:
        """All of the runs, in order."""
        return _concatenate(runs)


class FilterPerCall:
    """Drops page 0 at each call, as filed in sglang#38519: 1 sync per call, n per group of n calls."""

    name = "filter-per-call"

    def enqueue(self, pages: torch.Tensor) -> torch.Tensor:
        """Keeps pages with a peer: int64[k] -> int64[mapped]."""
        return _drop_padding(pages)

    def flush(self, runs: list[torch.Tensor]) -> torch.Tensor:
        """All of the runs, in order: they are filtered already."""
        return _concatenate(runs)


class FilterPerGroup:
    """Drops page 0 once, when the group is flushed: 1 sync per group; outside a group 1 per call."""

    name = "filter-per-group"

    def enqueue(self, pages: torch.Tensor) -> torch.Tensor:
        """Keeps all until the flush: int64[k] -> int64[k]."""
        return pages

    def flush(self, runs: list[torch.Tensor]) -> torch.Tensor:
        """Pages with a peer of all the runs, in order."""
        return _drop_padding(_concatenate(runs))


RELEASE_STRATEGIES: dict[str, type] = {
    strategy.name: strategy for strategy in (Unpatched, FilterPerCall, FilterPerGroup)
}


def release_strategy(name: str) -> ReleaseStrategy:
    """The strategy of that name. Raises ValueError with the choices."""
    if name not in RELEASE_STRATEGIES:
        raise ValueError(f"release: no strategy {name!r}; choose one of {', '.join(RELEASE_STRATEGIES)}")
    return RELEASE_STRATEGIES[name]()
