"""F22: the key of a page does not name its namespace (sgl-project/sglang#24638, vllm-project/vllm#44701,
LMCache/LMCache#4783: an adapter's name and a salt in one place of the key, a hash that was cut).

Two namespaces with the same text, such as one system prompt, then share keys, and the second one reads what the first
has written. A key of the text alone is called here by the key of the namespace that published the text first. A hash
that was cut does the same to two texts.
"""

from __future__ import annotations

import numpy as np

from allocator.faults.log import FaultLog
from stress.engine.contract import RequestSpec
from stress.engine.reference.row import Row


class KeyWithoutNamespace:
    """Overrides a ReferenceEngine. Triggers: a hit on, and an insert of, a text that another namespace published."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._key_of_text: dict[int, int] = {}

    def keys_of(self, spec: RequestSpec) -> np.ndarray:
        keys = super().keys_of(spec)
        faulty = self._faulty(spec, keys)
        hit = self.memory.cache.usable(faulty[: self._usable_pages(spec)])
        return faulty if (faulty != keys)[:hit].any() and self.faults.acts("F22") else keys

    def keys_to_publish(self, row: Row) -> np.ndarray:
        keys, whole = super().keys_to_publish(row), row.committed // self.page_size
        faulty = self._faulty(row.spec, keys)
        own = row.spec.keys
        if (faulty != own)[:whole].any() and self.faults.acts("F22"):
            keys = faulty
        texts = own if row.spec.texts is None else row.spec.texts
        for text, key in zip(texts[:whole].tolist(), keys[:whole].tolist(), strict=True):
            self._key_of_text.setdefault(text, key)
        return keys

    def _faulty(self, spec: RequestSpec, keys: np.ndarray) -> np.ndarray:
        texts = keys if spec.texts is None else spec.texts
        known = self._key_of_text
        pairs = zip(texts.tolist(), keys.tolist(), strict=True)
        return np.array([known.get(text, key) for text, key in pairs], dtype=np.int64)
