"""Run as a script, with a tree's root and SWA pages: asks its own prefill budget about a request behind its own prefix.

    python tests/sglang/prefill_budget_questions.py ROOT [SWA_PAGES]

Pages of 256, a window of 128, chunks of 8,192 tokens, 131,072 FULL tokens. A first request of 8,192 tokens ends in its
prefill. A second one shares 7,936 of them and has 8,448 more; nothing else runs. Prints one JSON line: what of the SWA
pool is free or evictable once the second one's prefix is locked, as an admission locks it, what it needs, whether it is
admitted, and with what chunk.
"""

import json
import sys
from pathlib import Path

import numpy as np

from stress.config import load_config
from stress.engine.contract import RequestSpec
from stress.engine.sglang.build import build_sglang
from stress.engine.sglang.request import SglangRequest

PAGE, WINDOW, CHUNK, SHARED = 256, 128, 8192, 7936
NEW_TOKENS = 100
SETTINGS = (
    "layout.tp_size=1",
    "layout.dp_size=1",
    "linker.enabled=false",
    "pool.unified_kv=false",
    f"pool.page_size={PAGE}",
    f"pool.window_tokens={WINDOW}",
    "pool.full_pages=512",
    f"serving.chunk_tokens={CHUNK}",
    "serving.draft_tokens=0",
)


def main(root: str, swa_pages: str = "51") -> None:
    config = load_config("smoke", [*SETTINGS, f"pool.swa_pages={swa_pages}"])
    engine = build_sglang(config, Path(root), "cpu", None)
    engine.open(request_of(0, CHUNK, 1))
    engine.admit(0, 0)
    assert engine.extend([(0, CHUNK)])
    engine.results_begin()
    engine.commit([(0, CHUNK)])
    engine.finish(0)
    engine.results_end()
    print(json.dumps(second_request(engine)))


def request_of(rid: int, prompt: int, output: int) -> RequestSpec:
    def tokens(lo: int, hi: int) -> np.ndarray:
        at = np.arange(lo, hi)
        return np.where(at < SHARED, at, at + (rid + 1) * 1_000_000)

    keys = np.arange(1, -(-(prompt + output) // PAGE) + 1)
    return RequestSpec(rid, 0, prompt, output, keys, tokens)


def second_request(engine) -> dict:
    calls = engine.calls
    prompt = SHARED + CHUNK + PAGE
    request = SglangRequest(request_of(1, prompt, NEW_TOKENS), calls.new_kv())
    calls.match(request)
    calls.lock(request)
    budget = calls.allocator.create_prefill_budget(calls.cache)
    left = prompt - request.prefix_len
    admitted, chunk = budget.check_prefill(
        extend_input_len=left,
        total_tokens=left + NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
        input_tokens=prompt,
        swa_host_hit_length=0,
        chunk_limit=CHUNK,
    )
    return {
        "hit": request.prefix_len,
        "swa_size": calls.allocator.size_swa,
        "swa_left": int(budget.remaining_swa),
        "swa_needed": budget.swa_tokens(left, NEW_TOKENS, chunk_limit=CHUNK),
        "admitted": admitted,
        "chunk": chunk,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
