"""Stands for the model where its layers have a table a group: what `Content` does, for blocks in one pool.

Each group has stamps of its own over all pages of the pool, for groups may differ in their page size; a page that one
group writes is unwritten for the others. What is in a page is named by the key of the prefix up to its end and by the
group. Compared are a hit at admission and, before each pass, what it reads of each group: what a position sees there.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import EventKind
from stress.content.arrays import HostArrays
from stress.content.span import Span
from stress.content.stamps import FullStamps, SampledStamps
from stress.engine.contract import RequestSpec
from stress.engine.groups import Group, GroupedEngine
from stress.operation import Rows
from stress.probe.block_watch import BlockWatch
from stress.words import split


class GroupContent:
    """`every_slot`: all slots instead of two a page; `closely`: of one request in so many it is compared what is
    read. What is written is stamped for all."""

    def __init__(
        self,
        engine: GroupedEngine,
        watch: BlockWatch,
        *,
        every_slot: bool = False,
        bytes_per_token: int = 0,
        closely: int = 1,
    ) -> None:
        self._engine, self._watch, self._closely = engine, watch, closely
        self._every_slot = every_slot
        arrays, shape = HostArrays(), watch.source.shape
        self._null = shape.null_page
        self._stamps: dict[str, FullStamps | SampledStamps] = {}
        for group in engine.groups:
            own = shape._replace(page_size=group.page_size)
            self._stamps[group.name] = (
                FullStamps(own, arrays, bytes_per_token) if every_slot else SampledStamps(own, arrays)
            )
        self._salts = {g.name: np.int64(split(0, f"group/{g.name}") >> 1) for g in engine.groups}
        self._specs: dict[int, RequestSpec] = {}
        self._host = np.zeros(
            (0, self._words()), dtype=np.int64
        )  # by page of the host: stamps and labels of each group
        watch.on_lend = self._lent

    def open(self, spec: RequestSpec) -> None:
        """A request is known from now on."""
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        """A request is gone."""
        del self._specs[rid]

    def before_pass(self, rows: Rows) -> None:
        """The engine is about to commit: what the pass that stands for read is compared."""
        for rid, _ in rows:
            if not rid % self._closely:
                self._compare(rid, self._engine.committed(rid), "forward")

    def after_pass(self, rows: Rows) -> None:
        """It has committed: what the pass wrote is stamped."""
        for rid, accepted in rows:
            hi = self._engine.committed(rid)
            self.write(rid, hi - accepted, hi)

    def after_step(self, rows: Rows, found: dict[int, int]) -> None:
        """As `after_pass`, and then what the pass read is compared: it may read what it has written for another
        request. `found`: of requests in their first step, the tokens that they came out of the cache with."""
        self.after_pass(rows)
        for rid, _ in rows:
            if rid % self._closely:
                continue
            if rid in found:
                self._compare(rid, found[rid], "hit")
            self._compare(rid, self._engine.committed(rid), "forward")

    def before_publication(self, rows: Rows) -> None:
        """A prefix is published before it is computed: there is nothing in it to compare."""

    def after_admission(self, rows: Rows, cached: int) -> None:
        """It has admitted a request with so many tokens out of the cache."""
        rid = rows[0][0]
        if cached and not rid % self._closely:
            self._compare(rid, cached, "hit")

    def sweep(self, cached: np.ndarray) -> None:
        """What is in the prefix map is compared when it is found."""

    def write(self, rid: int, lo: int, hi: int) -> None:
        """Positions [lo, hi) of the request are written in every group."""
        if lo >= hi:
            return
        for group in self._engine.groups:
            span = self._span(rid, group, lo, hi)
            if span is not None:
                self._stamps[group.name].write(span)
                for name, others in self._stamps.items():
                    if name != group.name:
                        others.lend(span.pages.tolist())

    def copy_out(self, pages: list[int], host_pages: list[int]) -> None:
        """The host takes over what these pages hold, pair by pair."""
        for page, host in zip(pages, host_pages, strict=True):
            parts = [part for stamps in self._stamps.values() for part in stamps.snapshot(page)]
            if host >= len(self._host):
                grown = np.zeros((max(2 * len(self._host), host + 1), self._host.shape[1]), dtype=np.int64)
                grown[: len(self._host)] = self._host
                self._host = grown
            np.concatenate(parts, out=self._host[host])

    def copy_in(self, host_pages: list[int], pages: list[int]) -> None:
        """These pages hold what the host has, pair by pair."""
        for host, page in zip(host_pages, pages, strict=True):
            held, start = self._host[host], 0
            for stamps in self._stamps.values():
                words = [len(part) for part in stamps.snapshot(page)]
                middle, end = start + words[0], start + sum(words)
                stamps.restore(page, (held[start:middle], held[middle:end]))
                start = end

    def _words(self) -> int:
        """Words that one page's stamps and labels are, of all groups."""
        return sum(len(part) for stamps in self._stamps.values() for part in stamps.snapshot(0))

    def _lent(self, pool: str, pages: list[int]) -> None:
        for stamps in self._stamps.values():
            stamps.lend(pages)

    def _compare(self, rid: int, tokens: int, method: str) -> None:
        """What a pass behind `tokens` positions reads; all of them in a group that sees all only with every slot."""
        for group in self._engine.groups:
            lo = group.reads_from(tokens)
            if method == "forward" and group.sees_all and not self._every_slot:
                lo = max(
                    0, tokens - group.page_size
                )  # a sample: the hit was compared whole, the rest as it grew
            lo = lo // group.page_size * group.page_size
            span = self._span(rid, group, lo, tokens) if lo < tokens else None
            difference = None if span is None else self._stamps[group.name].compare(span)
            if difference is not None:
                watch, cause = self._watch, self._watch.cause
                watch.cause = cause.of(rid)
                told = watch.source.name, *difference
                watch.tell(EventKind.CONTENT, *told, method, table=group.name)
                watch.cause = cause

    def _span(self, rid: int, group: Group, lo: int, hi: int) -> Span | None:
        """The pages of positions [lo, hi), from the last hole on; None: there are none."""
        size = group.page_size
        first, end = lo // size, -(-hi // size)
        pages = np.array(self._engine.group_table(rid, group.name, first, end), dtype=np.int64)
        holes = np.flatnonzero(pages == self._null)
        begin = lo - first * size
        if len(holes):
            after = int(holes[-1]) + 1
            pages, first, begin = pages[after:], first + after, 0
        if not len(pages):
            return None
        keys = self._keys(rid, group, first, len(pages))
        return Span(pages, keys, begin, hi - (end - 1) * size, rid, first)

    def _keys(self, rid: int, group: Group, first: int, count: int) -> np.ndarray:
        """int64[count]: of the group's pages from place `first` on, what names the prefix to each one's end, or to the
        request's, and the group."""
        keys, each = self._specs[rid].keys, group.page_size // self._engine.page_size
        if each == 1:
            keys = keys[first : first + count]
        else:
            last = np.arange(first + 1, first + count + 1) * each
            keys = keys[np.minimum(last, len(keys)) - 1]
        return keys ^ self._salts[group.name]
