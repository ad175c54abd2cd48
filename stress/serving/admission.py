"""Who may come in: first come first served, up to the chunk's budget, with room kept back for what already runs.

As upstream's prefill adder: a request whose next chunk would not end its prompt gets whole pages only, and only the
last of a batch may be cut. Room kept back: the rest of the prompts already in the batch, and
ceil(0.3 x longest output / page size) pages for decoding.
"""

from __future__ import annotations

from collections.abc import Iterable

from stress.serving.request import LiveRequest


class Batch:
    """A prefill batch under construction: rows (request, position up to which it is prefilled)."""

    def __init__(self, chunk_tokens: int, page_size: int) -> None:
        self.budget = chunk_tokens
        self.page_size = page_size
        self.rows: list[tuple[LiveRequest, int]] = []

    def has_budget(self) -> bool:
        return self.budget >= self.page_size

    def add(self, request: LiveRequest) -> None:
        take = min(self.budget, request.left_to_prefill)
        if take < request.left_to_prefill:
            take -= take % self.page_size
        self.rows.append((request, request.position + take))
        self.budget -= take

    @property
    def tokens(self) -> int:
        return sum(upto - request.position for request, upto in self.rows)

    def outstanding(self) -> int:
        """Tokens, in whole pages a request, that the batch's prompts have still to get slots for."""
        page_size = self.page_size
        return sum(-(-request.left_to_prefill // page_size) * page_size for request, _ in self.rows)


def kept_back(batch: Batch, running: Iterable[LiveRequest], candidate: LiveRequest) -> int:
    """FULL tokens that must be left when the candidate's whole prompt is in."""
    longest = max([candidate.plan.output_tokens, *(request.plan.output_tokens for request in running)])
    pages = -(-3 * longest // (10 * batch.page_size))
    return pages * batch.page_size + batch.outstanding()


def swa_fits(batch: Batch, candidate: LiveRequest, swa_room: int) -> bool:
    """Whether the SWA side has room for the batch and for what the candidate may add to this chunk."""
    page_size = batch.page_size
    most = min(batch.budget, candidate.target)
    return batch.outstanding() + most + 2 * page_size <= swa_room
