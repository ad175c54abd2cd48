"""The smallest pools that are taken: they are the ones that the message names, and they do for what is derived."""

import msgspec
import numpy as np
import pytest
from reference_bench import KEYS, PAGE, finish, spec

from stress.config import ConfigError, load_config
from stress.config_pools import (
    EVICTION_INTERVAL_TOKENS,
    check_full_pool,
    full_pages_needed,
    swa_beside_ballast,
    swa_pages_behind_prefix,
    swa_pages_needed,
)
from stress.engine.contract import Warm
from stress.engine.reference import build_reference


@pytest.mark.parametrize(
    ("overrides", "pages"),
    [
        ([], 68),  # decoded 3, locked 3, window 1 and chunk 64
        # decoded 5, locked 6, window 2 and chunk 16
        (["pool.page_size=64", "serving.chunk_tokens=1024"], 24),
        (["pool.page_size=1", "serving.chunk_tokens=1"], 664),  # decoded 268, locked 395, decoding decides
        (["pool.window_tokens=1000", "serving.draft_tokens=0"], 77),  # decoded 6, locked 9, window 4
    ],
)
def test_the_smallest_swa_pool_that_is_taken_is_the_one_that_is_named(overrides, pages):
    config = load_config("seed", [*overrides, "pool.swa_pages=100000"])
    assert swa_pages_needed(config.pool, config.serving) == pages
    assert load_config("seed", [*overrides, f"pool.swa_pages={pages}"]).pool.swa_pages == pages
    with pytest.raises(ConfigError, match=f"give at least {pages}, or a smaller serving.chunk_tokens"):
        load_config("seed", [*overrides, f"pool.swa_pages={pages - 1}"])


def test_a_chunk_has_room_behind_the_prefix_of_a_request_that_ended_in_its_prefill():
    """The prefix is one node of 14 pages of 64, all of them with SWA: a window of 2 pages locks the whole of it."""
    config = load_config("smoke", ["serving.chunk_tokens=1024", "pool.swa_pages=100", "linker.enabled=false"])

    def chunk_fits(swa_pages: int) -> bool:
        sized = msgspec.structs.replace(
            config, pool=msgspec.structs.replace(config.pool, swa_pages=swa_pages)
        )
        nothing = Warm(lambda own: iter([np.zeros(0, dtype=np.int64)]), lambda pages: pages)
        target = build_reference(sized, sized.arms.named["patched"], "cpu", nothing)
        target.open(spec(1, KEYS[:16], 16 * PAGE, 1))
        assert target.admit(1, 0) and target.extend([(1, 16 * PAGE)])
        target.commit([(1, 16 * PAGE)])
        finish(target, 1)
        target.open(spec(2, KEYS[:14], 30 * PAGE))
        assert target.admit(2, 0).cached == 14 * PAGE
        return target.extend([(2, 30 * PAGE)])

    assert (chunk_fits(29), chunk_fits(30)) == (False, True)
    assert swa_pages_needed(config.pool, config.serving) == 24
    # decoded 5, chunk 16, locked 17, window 2: the nodes behind the last may be one page of another request
    assert swa_pages_behind_prefix(config.pool, config.serving) == 35


def test_a_chunk_shorter_than_what_decoding_keeps_pins_no_more():
    config = load_config("smoke", ["serving.chunk_tokens=128"])
    assert swa_pages_behind_prefix(config.pool, config.serving) == swa_pages_needed(
        config.pool, config.serving
    )


def test_the_longest_request_decides_on_the_full_pool():
    config = load_config("smoke", ["pool.full_pages=85"])
    requests = [(100, 10), (5317, 40), (5200, 2)]
    # 5317 + 40 + 8 tokens are 84 pages of 64, and one for a chunk that goes over an edge
    assert full_pages_needed(config.pool, config.serving, 5317, 40) == 85
    check_full_pool(config, requests)
    small = load_config("smoke", ["pool.full_pages=84"])
    with pytest.raises(ConfigError) as refused:
        check_full_pool(small, requests)
    assert str(refused.value) == (
        "pool.full_pages: 84 pages can't hold the longest request of the workload, 5317 + 40 tokens; "
        "give at least 85"
    )


def test_admission_keeps_three_tenths_of_the_output_back():
    config = load_config("smoke")
    # 1600 tokens are 25 pages; 0.3 x 1000 tokens are 300, 5 pages
    assert full_pages_needed(config.pool, config.serving, 600, 1000) == 30


def test_the_eviction_interval_is_the_engines():
    """Written down twice, so that a configuration is read without torch."""
    from stress.engine.reference.publish import EVICTION_INTERVAL_TOKENS as of_the_engine

    assert of_the_engine == EVICTION_INTERVAL_TOKENS


def test_what_ballast_holds_is_not_counted_on():
    # 85 pages are needed, and four of five are on loan to others
    large = load_config("smoke", ["pool.full_pages=421", "pool.swa_pages=500", "workload.ballast=0.8"])
    check_full_pool(large, [(5317, 40)])
    small = load_config("smoke", ["pool.full_pages=420", "pool.swa_pages=500", "workload.ballast=0.8"])
    with pytest.raises(ConfigError) as refused:
        check_full_pool(small, [(5317, 40)])
    assert str(refused.value) == (
        "pool.full_pages: 420 pages can't hold the longest request of the workload, 5317 + 40 tokens; "
        "give at least 421, or a smaller workload.ballast than 0.8"
    )


@pytest.mark.parametrize(
    ("full", "swa", "share", "left"),
    [
        (800, 151, 0.9, 14),
        (1000, 151, 0.9, 14),
        (1000, 800, 0.5, 300),
        (600, 500, 0.8, 20),
        (888, 800, 0.9, 1),
    ],
)
def test_what_ballast_leaves_of_the_window_pages_is_what_an_engine_has_left(full, swa, share, left):
    """The numbers of an engine that was loaded with it: a window of 2 pages, or a whole chunk, goes besides."""
    pool = msgspec.structs.replace(load_config("smoke").pool, full_pages=full, swa_pages=swa)
    assert swa_beside_ballast(pool, share) == left


def test_ballast_leaves_a_chunk_its_window_pages():
    assert swa_pages_needed(load_config("smoke").pool, load_config("smoke").serving) == 16
    load_config("smoke", ["pool.swa_pages=171", "pool.full_pages=1000", "workload.ballast=0.9"])
    with pytest.raises(ConfigError, match="give at least 16 beside the ballast, or a smaller serving"):
        load_config("smoke", ["pool.swa_pages=170", "pool.full_pages=1000", "workload.ballast=0.9"])
