"""How many pages a pool must have so that one request alone always goes on, on a rank that is idle otherwise.

Below these numbers a request would be given up as stuck, which says nothing about an allocator, so such a run
is refused before any rank starts: by the SWA pool when the configuration is read, by the FULL pool when the
workload is planned and its longest request is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from stress.config_schema import Config, ConfigError, Pool, Serving

# Decoding gives pages back when so many tokens have slid out of the window (SGLANG_SWA_EVICTION_INTERVAL).
EVICTION_INTERVAL_TOKENS = 128


def swa_pages_needed(pool: Pool, serving: Serving) -> int:
    """SWA pages with which a request's prefill and decoding find room.

        | locked in the cache | restored window | next chunk |          while the prompt is prefilled
        | locked in the cache | private, up to the last slot reserved | while it decodes

    A lock holds whole cached nodes until they cover the window; the last may be as long as what decoding keeps.
    """
    window, chunk, decoded = _window_chunk_decoded(pool, serving)
    return window - 1 + decoded + max(window + chunk, decoded + 1)


def swa_pages_behind_prefix(pool: Pool, serving: Serving) -> int:
    """SWA pages with which that also holds behind a prefix that pins as much as a prefix can.

    Nothing slides out of a request that ends in its prefill, so it may leave a node as long as a chunk. A pool between
    the two numbers may be asked for, as a server's may be that small; a request that shares such a node but for its
    end is then given up as stuck.
    """
    _, chunk, decoded = _window_chunk_decoded(pool, serving)
    return swa_pages_needed(pool, serving) + max(0, chunk - decoded)


def _window_chunk_decoded(pool: Pool, serving: Serving) -> tuple[int, int, int]:
    """In pages: the window, a chunk, and what decoding keeps between two releases of its window.

    A release waits until the interval has slid out and a whole page besides the window, and a step adds its drafts
    before it gives anything back.
    """
    page, window = pool.page_size, -(-pool.window_tokens // pool.page_size)
    tokens = max(EVICTION_INTERVAL_TOKENS + pool.window_tokens, page + window * page)
    decoded = -(-(tokens + (3 * serving.draft_tokens or 2)) // page)  # without drafts one comes, one is ahead
    return window, -(-serving.chunk_tokens // page), decoded


def full_pages_needed(pool: Pool, serving: Serving, prompt: int, output: int) -> int:
    """FULL pages with which a request of `prompt` + `output` tokens is admitted and can decode to its end.

    Admission keeps 0.3 x output back in whole pages, also when a request that was retracted comes again with
    what it has produced.
    """
    page = pool.page_size
    decoding = -(-(prompt + output + (2 * serving.draft_tokens or 1)) // page) + 1
    admission = -(-(prompt + output) // page) - (-3 * output // (10 * page))
    return max(decoding, admission)


def in_ballast(pages: int, share: float) -> int:
    """Of so many pages, those that ballast of this share (stress.serving.ballast) takes."""
    return pages * round(share * 1000) // 1000


def swa_beside_ballast(pool: Pool, share: float) -> int:
    """SWA pages that ballast leaves to the requests. One request of it holds as many pages in both pools; what is left
    of the share in FULL is another's, which keeps its window, or all of its SWA pages where one chunk takes them."""
    most = min(pool.full_pages, pool.swa_pages)
    wide = in_ballast(most, share)
    more = in_ballast(pool.full_pages, share) - wide
    if more > most - wide:
        more = -(-pool.window_tokens // pool.page_size)
    return pool.swa_pages - wide - more


def enough_beside_ballast(pages: int, share: float) -> int:
    """The smallest FULL pool of which so many are left, for a share below 1."""
    return (pages - 1) * 1000 // (1000 - round(share * 1000)) + 1


def less_ballast(share: float) -> str:
    """For a message about what ballast leaves."""
    return f", or a smaller workload.ballast than {share}" if share else ""


def check_full_pool(config: Config, requests: Iterable[tuple[int, int]]) -> None:
    """Raises ConfigError where a planned request, (prompt, output) tokens, can never run."""
    pages, prompt, output = max(
        (full_pages_needed(config.pool, config.serving, *tokens), *tokens) for tokens in requests
    )
    full_pages, share = config.pool.full_pages, config.workload.ballast
    if pages > full_pages - in_ballast(full_pages, share):
        raise ConfigError(
            f"pool.full_pages: {full_pages} pages can't hold the longest request of the workload, "
            f"{prompt} + {output} tokens; give at least {enough_beside_ballast(pages, share)}{less_ballast(share)}"
        )
