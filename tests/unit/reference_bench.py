"""Short words for the reference engine's tests: a small engine, a request, its prefill and its end."""

from __future__ import annotations

import numpy as np

from stress.config import load_config
from stress.engine.contract import RequestSpec, Warm
from stress.engine.reference import build_reference
from stress.engine.reference.habits import Habits

PAGE = 64
SMALL = ["pool.full_pages=128", "pool.swa_pages=128", "serving.chunk_tokens=2048", "pool.window_tokens=128"]


def engine(release: str, *overrides: str, warm=(), habits: Habits | None = None):
    config = load_config("smoke", [*SMALL, *overrides], seed=1)
    arm = config.arms.named["unpatched" if release == "unpatched" else "patched"]
    keys = np.array(warm, dtype=np.int64)
    held = Warm(lambda own: iter([keys]), lambda pages: pages)
    return build_reference(config, arm, "cpu", held, habits)


def spec(rid: int, keys, prompt: int, output: int = 8) -> RequestSpec:
    pages = -(-(prompt + output) // PAGE)
    private = [rid * 1_000_000 + page for page in range(len(keys), pages)]
    all_keys = np.array([*keys, *private][:pages], dtype=np.int64)
    return RequestSpec(rid, 0, prompt, output, all_keys, lambda lo, hi: np.arange(lo, hi))


def prefill(target, request: RequestSpec, spare: int = 0):
    target.open(request)
    admission = target.admit(request.rid, spare)
    start = admission.cached + admission.loaded
    assert target.extend([(request.rid, request.prompt_tokens)])
    target.now_us += 1_000_000
    target.poll()
    target.results_begin()
    target.commit([(request.rid, request.prompt_tokens - start)])
    target.checkpoint(request.rid)
    target.results_end()
    return admission


def finish(target, rid: int) -> None:
    target.results_begin()
    target.finish(rid)
    target.results_end()
    target.now_us += 1_000_000
    target.poll()


def swa_free(target) -> list[int]:
    return target.allocators().swa_attn_allocator.get_all_free_pages().tolist()


def assert_whole(target) -> None:
    target.drain()
    assert target.leftover() == (0, 0, 0, 0, 0)
    for size, available, evictable, protected in target.counts().values():
        assert (available, evictable, protected) == (size, 0, 0)
    assert target.allocators().check_integrity() == []
    assert target.memory.cache.check_integrity() == []


KEYS = list(range(1, 21))  # 20 pages that the store holds
