"""Run as a script, with a tree's root: imports it and prints what test_tree_import asks, as one JSON line."""

import hashlib
import json
import struct
import sys
from array import array

import torch

from stress.engine.sglang.null_kv_pool import null_kv_pool
from stress.engine.sglang.tree_import import load_tree
from stress.engine.stand_in import StandInUsed
from stress.engine.tree_error import TreeError

PAGE = 16


def main(root):
    threads = torch.get_num_threads()
    tree = load_tree(root, "python")
    answers = {
        "version": tree.version,
        "substitutes": tree.substitutes,
        "threads_kept": torch.get_num_threads() == threads,
        "same_again": load_tree(root) is tree,
        "files": sorted({bool(module.__file__.startswith(root)) for module in modules(tree)}),
        "kernel_mismatches": kernel_mismatches(tree),
        "hash_mismatches": hash_mismatches(tree),
        "left_in_process": sorted({"psutil", "orjson", "zmq", "PIL"} & set(sys.modules)),
        "missing_elsewhere": is_missing("pybase64"),
    }
    answers["other_root"] = refusal(lambda: load_tree("/tmp"), TreeError)
    answers["other_core"] = refusal(lambda: load_tree(root, "rust"), TreeError)
    answers["config"] = refusal(lambda: tree.common.get_spec().speculative_num_steps, StandInUsed)
    tree.config.speculative_algorithm = "EAGLE"
    answers["config_is_one"] = tree.common.get_spec().speculative_algorithm
    from sglang.srt.sampling.sampling_params import SamplingParams

    answers["stand_in"] = refusal(lambda: SamplingParams(), StandInUsed)
    answers["ring_credit"] = ring_credit(tree)
    print(json.dumps(answers))


def modules(tree):
    return [tree.swa, tree.paged, tree.unified_radix_cache, tree.common, tree.schedule_batch]


def is_missing(package):
    try:
        __import__(package)
    except ModuleNotFoundError:
        return True
    return "stand_in" in type(sys.modules[package]).__module__ and "a stand-in stayed"


def refusal(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    return "not refused"


def lcg(seed):
    """Small integers, the same on every machine."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def kernel_mismatches(tree):
    """Batches whose slots by the allocator's kernels differ from arithmetic on one token at a time."""
    numbers, wrong = lcg(1), 0
    for _ in range(30):
        count = next(numbers) % 6 + 1
        before = [next(numbers) % (5 * PAGE) for _ in range(count)]
        after = [start + next(numbers) % (4 * PAGE) + 1 for start in before]
        last = [(100 + i) * PAGE + (start - 1) % PAGE if start else -1 for i, start in enumerate(before)]
        pool = tree.PagedTokenToKVPoolAllocator(
            size=64 * PAGE, page_size=PAGE, dtype=torch.bfloat16, device="cpu", kvcache=None, need_sort=False
        )
        free = iter(range(1, 65))
        expected = [token for case in zip(before, after, last, strict=True) for token in slots(*case, free)]
        lens = [torch.tensor(before), torch.tensor(before), torch.tensor(after), torch.tensor(after)]
        wrong += pool.alloc_extend(*lens, torch.tensor(last), len(expected)).tolist() != expected
        ends = [(200 + i) * PAGE + (end - 1) % PAGE for i, end in enumerate(after)]
        longer = torch.tensor(after) + 1
        expected = [
            slot for end, at in zip(after, ends, strict=True) for slot in slots(end, end + 1, at, free)
        ]
        wrong += pool.alloc_decode(longer, longer, torch.tensor(ends)).tolist() != expected
    return wrong


def slots(start, end, last, free):
    """One request's slots for tokens [start, end), the token before it being in slot `last`."""
    for position in range(start, end):
        last = next(free) * PAGE if position % PAGE == 0 else last + 1
        yield last


def hash_mismatches(tree):
    numbers, wrong = lcg(2), 0
    hashes = sys.modules["sglang.srt.mem_cache.utils"].get_native_hash
    for length in (1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE):
        tokens = [next(numbers) % 150_000 for _ in range(length + 1)]
        for bigram in (False, True):
            key = tree.RadixKey(array("q", tokens[: length + bigram]), None, is_bigram=bigram)
            pairs = [word for i in range(length) for word in tokens[i : i + 2]]
            for prior in (None, bytes(range(32))):
                words, width = (pairs, 2) if bigram else (tokens[:length], 1)
                wrong += hashes(key, prior, PAGE) != chained(words, prior, PAGE * width)
                wrong += hashes(key, prior) != chained(words, prior, len(words))[-1]
    return wrong


def chained(words, prior, step):
    digest, found = prior or b"", []
    for start in range(0, len(words), step):
        part = words[start : start + step]
        digest = hashlib.sha256(digest + struct.pack(f"<{len(part)}I", *part)).digest()
        found.append(digest.hex())
    return found


def ring_credit(tree):
    """SWA pages over the pool's size after a ring's segment is freed in a group; "assert" where that is seen."""
    rows = tree.ReqToTokenPool(4, 8 * PAGE, "cpu", False)
    allocator = tree.SWATokenToKVPoolAllocator(
        size=8 * PAGE,
        size_swa=8 * PAGE,
        page_size=PAGE,
        dtype=torch.bfloat16,
        device="cpu",
        kvcache=null_kv_pool(tree, ring_size=PAGE),
        need_sort=False,
        req_to_token_pool=rows,
    )
    allocator.free_group_begin()
    allocator.free_swa_segment(allocator.full_attn_allocator.alloc(2 * PAGE), start_pos=0)
    try:
        allocator.free_group_end()
    except AssertionError:
        return "assert"
    paged = allocator.swa_attn_allocator
    return paged.available_size() - paged.size


if __name__ == "__main__":
    main(sys.argv[1])
