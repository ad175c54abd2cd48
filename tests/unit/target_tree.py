"""Trees and wheels of the projects' shapes, in a few lines; SGLang's with what edits and patches find in it."""

import zipfile

ALLOCATOR = '''"""Pools."""


class SWATokenToKVPoolAllocator:
    _swa_req_ring = False

    def free_swa_segment(self, free_index, *, start_pos):
        if self._swa_req_ring or free_index.numel() == 0:
            return
        self._free_swa_pages(free_index, start_pos)

    def _free_swa_pages(self, free_index, start_pos):
        swa_pages = self.pages_of(free_index)
        if self._swa_req_ring:
            return
        if self.free_group is not None:
            self.swa_page_ids_group.append(swa_pages)
            return
        self.swa_attn_allocator.free_page_ids(swa_pages)

    def free_group_end(self):
        if not self._swa_req_ring:
            self.swa_attn_allocator.free_page_ids(self.swa_page_ids_group)

    def available_size(self):
        return 0 if self._swa_req_ring else 1
'''

WRAPPER = """class UnifiedCacheLinkerWrapper:
    def __init__(self, cache, cache_linker):
        swa = cache.swa
        self._skip_swa = swa is not None and is_swa_req_ring(
            cache.allocator
        )

    def load_back(self, req):
        if self._skip_swa:
            req.kv.set_evicted_seqlen(SWA, self.prefix_len)
        return self.prefix_len
"""

ALLOCATOR_PATH = "sglang/srt/mem_cache/allocator/swa.py"
WRAPPER_PATH = "sglang/srt/mem_cache/unified_cache/unified_cache_linker.py"

TREES = {
    "sglang": {ALLOCATOR_PATH: ALLOCATOR, WRAPPER_PATH: WRAPPER},
    "vllm": {"vllm/v1/core/block_pool.py": "class BlockPool:\n    pass\n", "vllm/version.py": "x = 1\n"},
    "lmcache": {"lmcache/v1/memory_management.py": "class Allocator:\n    pass\n"},
}


def make_tree(root, project="sglang"):
    for path, text in TREES[project].items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def make_wheel(path, files):
    """A wheel that pip takes: its name says which project and version it is of."""
    name, version, *_ = [*path.stem.split("-"), "1"]
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in {**metadata, **files}.items():
            archive.writestr(each, text)
    return path
