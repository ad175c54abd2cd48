"""Page keys of one request at a time, from keep/new runs: int64 > 0, chained over the prefix, one for each page.

Equal keys <=> same namespace and same text up to the page's end (up to a 2**-62 chance a pair). A block chain H[j]
sums mixed (id, position) words, so it extends by a cumulative sum over the NEW blocks of a turn, whatever the ids.

    page >= block   page p ends with block (p+1)*page/block - 1: its chain word is the key
    page <  block   part q of block j: the chain word of j mixed with q
    head            the first floor((tool+system)/page) pages: text shared by all sessions of a namespace and kind
    output          the keys that the next turn has there if it goes on from this one, else private to the request
    tail            private: odd, where keys of full shared pages are even
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from stress.words import mix, split, words
from stress.workload.errors import WorkloadError
from stress.workload.sessions import Sessions

_CHAIN, _HEAD, _PRIVATE, _PLAY, _FORK = (
    split(0, f"key/{name}") for name in ("chain", "head", "private", "play", "fork")
)
_ONE = np.uint64(1)
CACHED_STREAMS = 1024  # block chains kept: ~2 x 16 KB each


def check_page_size(page_size: int, block_tokens: int) -> None:
    """Refuses a page size that is neither a divisor nor a multiple of the trace's block."""
    if page_size < 1 or (page_size % block_tokens and block_tokens % page_size):
        raise WorkloadError(
            f"pool.page_size = {page_size}: the trace has blocks of {block_tokens} tokens; "
            f"use a divisor or a multiple of {block_tokens}, such as 1, 16, 64 or 256"
        )


class PageKeys:
    """Keys of rows of ``sessions``; a row is addressed by (row, stream, play, namespace)."""

    def __init__(self, sessions: Sessions, page_size: int):
        check_page_size(page_size, sessions.block_tokens)
        self.sessions, self.page_size = sessions, page_size
        self._root = np.zeros(len(sessions.stream_head), dtype=bool)
        self._root[sessions.session_stream[:-1]] = True
        self._chains: OrderedDict[tuple[int, int, int], dict[int, np.ndarray]] = OrderedDict()
        self._heads: dict[tuple[int, bool], np.ndarray] = {}

    def row_keys(self, row: int, stream: int, play: int, namespace: int) -> np.ndarray:
        """int64[ceil((prompt + output) / page_size)]: the page keys of a row, its output and tail included."""
        s, page = self.sessions, self.page_size
        prompt, total = int(s.input[row]), int(s.input[row] + s.output[row])
        full, pages = total // page, -(-total // page)
        out = np.empty(pages, dtype=np.int64)
        chain = self._chain(row, stream, play, namespace)
        goes_on = self._continues(row, stream)
        # If the next turn goes on from here, it renames a partial block.
        whole = prompt - prompt % s.block_tokens if goes_on else prompt
        known = self._paged(chain, whole, out, 0, full)
        if known < full and goes_on:
            after = self._chain(row + 1, stream, play, namespace)
            known = self._paged(after, int(s.input[row + 1]), out, known, full)
        if known < pages:
            private = words(_PRIVATE, namespace, play, row, np.arange(known, pages))
            out[known:] = ((private >> _ONE) | _ONE).astype(np.int64)
        head = min(int(s.stream_head[stream]) // page, full)
        out[:head] = self._head(namespace, bool(self._root[stream]), head)
        return out

    def fork_keys(self, row: int, stream: int, play: int, namespace: int) -> np.ndarray:
        """As `row_keys`, of a request with the same prompt and another output: what is not all prompt is private."""
        out = self.row_keys(row, stream, play, namespace)
        known = int(self.sessions.input[row]) // self.page_size
        private = words(_FORK, namespace, play, row, np.arange(known, len(out)))
        out[known:] = ((private >> _ONE) | _ONE).astype(np.int64)
        return out

    def written(self, row: int, stream: int, play: int, namespace: int) -> np.ndarray:
        """Full pages that the row before has written and this row's prompt goes on from."""
        before = self.row_keys(row - 1, stream, play, namespace)
        s = self.sessions
        before = before[: int(s.input[row - 1] + s.output[row - 1]) // self.page_size]
        now = self.row_keys(row, stream, play, namespace)[: len(before)]
        return now[: len(before)][now == before[: len(now)]]

    def _continues(self, row: int, stream: int) -> bool:
        """The next turn keeps every full block of this one and holds its output."""
        s = self.sessions
        return bool(
            row + 1 < s.stream_row[stream + 1]
            and s.keep[row + 1] >= s.input[row] // s.block_tokens
            and s.input[row + 1] >= s.input[row] + s.output[row]
        )

    def _paged(self, chain: np.ndarray, prompt: int, out: np.ndarray, lo: int, hi: int) -> int:
        """Fills out[lo:hi] from a block chain as far as it names whole pages; returns the first page left open."""
        page, block = self.page_size, self.sessions.block_tokens
        hi = max(lo, min(hi, min(prompt, len(chain) * block) // page))
        if page >= block:
            group = page // block
            ends = chain[lo * group + group - 1 : hi * group : group]
        else:
            parts = block // page
            at = np.arange(lo, hi)
            ends = words(_CHAIN, at % parts)
            with np.errstate(over="ignore"):
                ends = ends + chain[at // parts]
        shared = ((mix(ends) >> _ONE) & ~_ONE).astype(np.int64)
        out[lo:hi] = np.maximum(shared, 2)
        return hi

    def _head(self, namespace: int, root: bool, pages: int) -> np.ndarray:
        held = self._heads.get((namespace, root))
        if held is None or len(held) < pages:
            raw = words(_HEAD, namespace, int(root), np.arange(max(pages, 64)))
            held = np.maximum(((raw >> _ONE) & ~_ONE).astype(np.int64), 2)
            self._heads[namespace, root] = held
        return held[:pages]

    def _chain(self, row: int, stream: int, play: int, namespace: int) -> np.ndarray:
        """uint64[blocks]: the chain words of a row; the last two rows of a stream are kept, turns come in order."""
        held = self._chains.get((stream, play, namespace))
        if held is None:
            held = self._chains[stream, play, namespace] = {}
            if len(self._chains) > CACHED_STREAMS:
                self._chains.popitem(last=False)
        self._chains.move_to_end((stream, play, namespace))
        if row in held:
            return held[row]
        first = int(self.sessions.stream_row[stream])
        at = max((r for r in held if r < row), default=first - 1)
        salt = words(_PLAY, namespace, 0 if self.sessions.shared_ids else play + 1)
        chain = held.get(at, np.empty(0, dtype=np.uint64))
        while at < row:
            at += 1
            chain = self._grow(chain, at, salt)
        previous = held.get(row - 1)
        held.clear()
        if previous is not None:
            held[row - 1] = previous
        held[row] = chain
        return chain

    def _grow(self, chain: np.ndarray, row: int, salt: np.uint64) -> np.ndarray:
        s = self.sessions
        keep, lo, hi = int(s.keep[row]), int(s.run_row[row]), int(s.run_row[row + 1])
        if lo == hi:
            return chain[:keep]
        ids = [
            np.arange(a, a + c)
            for a, c in zip(s.run_start[lo:hi].tolist(), s.run_count[lo:hi].tolist(), strict=True)
        ]
        new = ids[0] if len(ids) == 1 else np.concatenate(ids)
        with np.errstate(over="ignore"):
            grown = np.cumsum(words(salt, new, np.arange(keep, keep + len(new))), dtype=np.uint64)
            if keep:
                grown += chain[keep - 1]
        return np.concatenate((chain[:keep], grown))
