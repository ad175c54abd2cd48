"""Where the new tokens of a batch go: a layout worked out on the host from lengths alone.

A request's new tokens [prefix, seq) are cut into chunks of consecutive slots: a head, the rest of its last
page (empty if the prefix is page-aligned), then a chunk for each new page, the last of them perhaps partial.

    |pppppppp|pppphhhh|xxxxxxxx|xxxxx...|      p prefix, h head, x on new pages
           prefix ^              seq ^
Chunks number requests + new pages, so host work does not grow with tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class ExtendLayout(NamedTuple):
    """new_pages and tokens are totals of the batch; chunks is int64[3, requests + new_pages]:
    rows source (index into heads, then new pages), length (tokens), start (index of its first token)."""

    new_pages: int
    tokens: int
    chunks: np.ndarray


def count_new_pages(prefix_lens, seq_lens, page_size: int) -> int:
    """Pages that tokens [prefix, seq) of all requests open, from host lengths of shape [requests]."""
    prefix = np.asarray(prefix_lens, dtype=np.int64)
    seq = np.asarray(seq_lens, dtype=np.int64)
    return int(((seq + page_size - 1) // page_size - (prefix + page_size - 1) // page_size).sum())


def lay_out_extend(prefix_lens, seq_lens, page_size: int) -> ExtendLayout:
    """Layout of tokens [prefix, seq) for host lengths of shape [requests] (tensor or array).

    Raises ValueError if a request would shrink.
    """
    prefix = np.asarray(prefix_lens, dtype=np.int64)
    seq = np.asarray(seq_lens, dtype=np.int64)
    if (seq < prefix).any():
        row = int(np.flatnonzero(seq < prefix)[0])
        raise ValueError(
            f"alloc_extend: request {row} of the batch has seq_len {seq[row]} < prefix_len {prefix[row]}; "
            "give the length after the extend as seq_lens"
        )
    page_end = -(-prefix // page_size) * page_size
    head = np.minimum(seq, page_end) - prefix
    tail = seq - prefix - head
    pages = -(-tail // page_size)
    requests, new_pages = len(prefix), int(pages.sum())

    head_at = np.arange(requests) + np.cumsum(pages) - pages
    chunks = np.empty((3, requests + new_pages), dtype=np.int64)
    source, length, start = chunks
    is_page = np.ones(requests + new_pages, dtype=bool)
    is_page[head_at] = False
    source[head_at] = np.arange(requests)
    source[is_page] = np.arange(requests, requests + new_pages)
    length[:] = page_size
    # A request without new pages has its head as its last chunk, so heads are written after last pages.
    length[head_at + pages] = tail - (pages - 1) * page_size
    length[head_at] = head
    np.cumsum(length, out=start)
    tokens = int(start[-1]) if requests else 0
    start -= length
    return ExtendLayout(new_pages, tokens, chunks)


def place_tokens(
    layout: ExtendLayout, last_loc: torch.Tensor, pages: torch.Tensor, page_size: int
) -> torch.Tensor:
    """Slots int64[layout.tokens] on the device of `pages`; last_loc is [requests], pages [layout.new_pages].

    Copies the layout to the device; reads nothing back.
    """
    source, length, start = torch.from_numpy(layout.chunks).to(pages.device, non_blocking=True)
    firsts = torch.cat((last_loc.to(torch.int64) + 1, pages * page_size))
    bases = firsts.index_select(0, source).sub_(start)
    # output_size is what keeps repeat_interleave from asking the device for the sum of the lengths.
    slots = torch.repeat_interleave(bases, length, output_size=layout.tokens)
    return slots.add_(torch.arange(layout.tokens, device=pages.device))
