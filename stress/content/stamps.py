"""The stamps of one pool: what each slot holds, as an integer that names its token's whole prefix and namespace.

A stamp is key + offset * TOKEN: the key of the page and the token's offset in it. A page that is lent anew loses
its stamps, so what is left from its last loan is nobody's. Beside the stamps stand labels, for words.
`FullStamps` has every slot; `SampledStamps` has two a page, of its first token and of the last one written, which is
all that it compares: two integers a page instead of one a slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stress.check.event import PoolShape
from stress.check.slot_label import NOTHING, label_of
from stress.content.arrays import Array, DeviceArrays, HostArrays
from stress.content.span import Span
from stress.content.stamp_cells import StampCells, wrapped

TOKEN = 0x1B873593CC9E2D51  # odd
_UNWRITTEN = np.iinfo(np.int64).min
_WORD_BYTES = 8
FEW = 4  # pages


class Difference(NamedTuple):
    """What a comparison tells: pages = [pages that differ, the first wrong slot], peers = [label found there, label
    expected, 1 if the slot was not written since its page was lent]. int64, on the pool's device."""

    pages: Array
    peers: Array


def token_words(offsets: np.ndarray) -> np.ndarray:
    """int64[n]: what each offset in a page adds to its key."""
    return np.asarray(offsets, dtype=np.int64) * np.int64(TOKEN)


class _Stamps:
    """`mapping`: the target's, of slots of the spans' pool to slots of this pool; None: it is the same pool."""

    def __init__(self, shape: PoolShape, arrays: HostArrays | DeviceArrays) -> None:
        self.name = shape.name
        self.page_size = shape.page_size
        self.arrays = arrays
        # Page ids from 0 on, the null page among them.
        self.pages = shape.first_page + shape.pages
        if shape.null_page is not None:
            self.pages = max(self.pages, shape.null_page + 1)
        self._offsets = np.arange(shape.page_size, dtype=np.int64)
        self._words = token_words(self._offsets)
        # By tokens of a page: what its last one's stamp is more than one at the page's end.
        self._from_end = np.concatenate((self._words[:1], self._words - self._words[-1])).tolist()
        self.cells: StampCells | None = None  # the same stamps page by page, where that can be done

    def snapshot(self, page: int) -> tuple[Array, Array]:
        """What the page's slots hold, by stamp and by label."""
        return self._stamps[page].copy(), self._labels.reshape(self.pages, -1)[page].copy()

    def restore(self, page: int, held: tuple[Array, Array]) -> None:
        """The page's slots hold what those of another page held in a `snapshot`."""
        self._stamps[page], self._labels.reshape(self.pages, -1)[page] = held

    def _forgotten(self, place: Array) -> Array:
        """int64[1]: whether nothing was written at this place of the stamps since its page was lent."""
        return (self.arrays.take(self._stamps, place) == _UNWRITTEN) * 1


class SampledStamps(_Stamps):
    """Two stamps a page: of its first token, and of the last one written as if that were the page's last."""

    def __init__(self, shape: PoolShape, arrays: HostArrays | DeviceArrays) -> None:
        super().__init__(shape, arrays)
        self._stamps = arrays.full((self.pages, 2), _UNWRITTEN)
        self._labels = arrays.full((self.pages, 2), NOTHING)
        self._ends = np.array([0, shape.page_size - 1])  # and of pages that follow each other
        self._ladder = (np.arange(self.pages)[:, None] * shape.page_size + self._ends).reshape(-1)
        self._column = arrays.place(np.arange(2))
        if not arrays.waits:
            self.cells = StampCells(self._stamps, self._labels, shape.page_size, self._from_end)

    def lend(self, pages: Array | list[int]) -> None:
        """The pages int64[n], or a list of few, are lent anew."""
        if type(pages) is not list or not self.cells.lend(pages, _UNWRITTEN):
            self.arrays.fill(self._stamps, self.arrays.place(pages), _UNWRITTEN)

    def write(self, span: Span, mapping=None) -> None:
        """The span's tokens are written."""
        arrays = self.arrays
        if len(span.pages) <= FEW and self.cells is not None:
            few = self._few(span, mapping)
            if few is not None:
                cells = self.cells
                for place, stamp, label in few[1 if span.begin else 0 :]:
                    cells.stamps[place], cells.labels[place] = stamp, label
                return
        written = slice(1 if span.begin else 0, None)
        places = self._places(span, mapping).reshape(-1)[written]
        keys, labels = span.keys.repeat(2), self._labels_of(span)
        keys[-1:] += self._short_of_end(span)
        arrays.put(self._stamps, places, arrays.place(keys[written]))
        arrays.put(self._labels, places, arrays.place(labels[written]))

    def compare(self, span: Span, mapping=None) -> Difference | None:
        """What differs from the span, whole pages from the first on; None: nothing, known at once on a host."""
        arrays, partial = self.arrays, span.end < self.page_size
        if len(span.pages) <= FEW and self.cells is not None:
            few = self._few(span, mapping)
            if few is not None and all(self.cells.stamps[place] == stamp for place, stamp, _ in few):
                return None
        if mapping is None:
            found = arrays.rows(self._stamps, arrays.place(span.pages))
        else:
            found = arrays.take(self._stamps, self._places(span, mapping))
        if partial:
            found[-1:, 1] -= self._short_of_end(span)
        keys = arrays.place(span.keys)[:, None]
        wrong = found != keys
        if not arrays.any_wrong(wrong):
            return None
        at = arrays.first(wrong.reshape(-1))
        place = self._places(span, mapping).reshape(-1)[at]
        count = arrays.count(wrong[:, 0] | wrong[:, 1])
        expected = arrays.place(self._labels_of(span))[at]
        slot = place // 2 * self.page_size
        return Difference(
            arrays.join(count, slot),
            arrays.join(arrays.take(self._labels, place), expected, self._forgotten(place)),
        )

    def found(self, span: Span) -> np.ndarray:
        """int64[n], on a host: the key that each page's stamps were written under, of its wrong one if one is wrong."""
        first, last = self._stamps.take(span.pages, axis=0).T
        return np.where(first != span.keys, first, last)

    def _few(self, span: Span, mapping) -> list[tuple[int, int, int]] | None:
        """(place, stamp, label) of the first and the last token of each page; None: a place is out of the pool."""
        size, last = self.page_size, len(span.pages) - 1
        pages, keys, labels = (part.tolist() for part in (span.pages, span.keys, span.page_labels(size)))
        ends = [span.end if at == last else size for at in range(last + 1)]
        first, final = [page * 2 for page in pages], [page * 2 + 1 for page in pages]
        if mapping is not None:
            slots = [page * size for page in pages]
            slots[0] += span.begin
            inner = [page * size + end - 1 for page, end in zip(pages, ends, strict=True)]
            try:
                peers = self.arrays.entries(mapping, slots + inner)
            except IndexError:
                return None
            first = [peer // size * 2 for peer in peers[: last + 1]]
            final = [peer // size * 2 + 1 for peer in peers[last + 1 :]]
        if max(first) >= 2 * self.pages or min(first) < 0 or max(final) >= 2 * self.pages or min(final) < 0:
            return None
        few = []
        for at, end in enumerate(ends):
            few.append((first[at], keys[at], labels[at]))
            stamp = keys[at] + (self._from_end[end] if end < size else 0)
            few.append((final[at], wrapped(stamp), labels[at] + end - 1))
        return few

    def _places(self, span: Span, mapping) -> Array:
        """Where the stamps of each page's first and last token stand in this pool: int64[n, 2]."""
        arrays, size = self.arrays, self.page_size
        if mapping is None:
            return arrays.place(span.pages)[:, None] * 2 + self._column
        slots = span.pages[:, None] * size + self._ends
        slots[0, 0] += span.begin
        slots[-1, 1] += span.end - size
        return arrays.translate(mapping, arrays.place(slots)) // size * 2 + self._column

    def _labels_of(self, span: Span) -> np.ndarray:
        """int64[2n], in the order of the places."""
        size, pages = self.page_size, len(span.pages)
        if span.labels is None and pages <= self.pages:
            labels = self._ladder[: 2 * pages] + label_of(span.rid, span.first * size)
        else:
            labels = (span.page_labels(size)[:, None] + self._ends).reshape(-1)
        labels[-1] += span.end - size
        return labels

    def _short_of_end(self, span: Span) -> int:
        """What the stamp of the span's last token lacks to one at its page's end."""
        return self._from_end[span.end]


class FullStamps(_Stamps):
    """Every slot. With `bytes_per_token` each slot is that many bytes of its stamp over and over, all compared."""

    def __init__(self, shape: PoolShape, arrays: HostArrays | DeviceArrays, bytes_per_token: int = 0) -> None:
        super().__init__(shape, arrays)
        self._copies = max(1, bytes_per_token // _WORD_BYTES)
        self._stamps = arrays.full((self.pages, self.page_size * self._copies), _UNWRITTEN)
        self._labels = arrays.full((self.pages * self.page_size,), NOTHING)
        self._copy = np.arange(self._copies, dtype=np.int64)

    def lend(self, pages: Array | list[int]) -> None:
        """The pages int64[n], or a list of few, are lent anew."""
        self.arrays.fill(self._stamps, self.arrays.place(pages), _UNWRITTEN)

    def write(self, span: Span, mapping=None) -> None:
        """The span's tokens are written."""
        arrays = self.arrays
        slots, stamps, labels = self._expected(span, mapping, span.begin)
        arrays.put(self._labels, slots, labels)
        for copy in range(self._copies):
            arrays.put(self._stamps, slots * self._copies + copy, stamps)

    def compare(self, span: Span, mapping=None) -> Difference | None:
        """What differs from the span, whole pages from the first on; None: nothing, known at once on a host."""
        arrays = self.arrays
        slots, stamps, labels = self._expected(span, mapping, 0)
        found = arrays.take(self._stamps, slots * self._copies)
        wrong = found != stamps
        for copy in range(1, self._copies):
            wrong = wrong | (arrays.take(self._stamps, slots * self._copies + copy) != stamps)
        if not arrays.any_wrong(wrong):
            return None
        at = arrays.first(wrong)
        pages = self._wrong_pages(wrong)
        return Difference(
            arrays.join(pages, slots[at]),
            arrays.join(
                arrays.take(self._labels, slots)[at], labels[at], self._forgotten(slots[at] * self._copies)
            ),
        )

    def found(self, span: Span) -> np.ndarray:
        """int64[n], on a host: the key that each page's stamps were written under, of a wrong one if one is wrong."""
        held = self._stamps[span.pages][:, :: self._copies] - self._words
        wrong = held != span.keys[:, None]
        return held[np.arange(len(held)), wrong.argmax(axis=1)]

    def _expected(self, span: Span, mapping, begin: int) -> tuple[Array, Array, Array]:
        """Slots of this pool, stamps and labels of the span's tokens in their order, from `begin` in the first page."""
        arrays, size = self.arrays, self.page_size
        part = slice(begin, len(span.pages) * size - (size - span.end))
        slots = arrays.place((span.pages[:, None] * size + self._offsets).reshape(-1)[part])
        if mapping is not None:
            slots = arrays.translate(mapping, slots)
        stamps = (span.keys[:, None] + self._words).reshape(-1)[part]
        labels = (span.page_labels(size)[:, None] + self._offsets).reshape(-1)[part]
        return slots, arrays.place(stamps), arrays.place(labels)

    def _wrong_pages(self, wrong: Array) -> Array:
        """int64[1]: pages of the span with a wrong token; it begins at a page's first token."""
        size = self.page_size
        padded = self.arrays.full((-(-len(wrong) // size) * size,), 0)
        padded[: len(wrong)] = wrong
        return self.arrays.count(padded.reshape(-1, size).sum(1) > 0)
