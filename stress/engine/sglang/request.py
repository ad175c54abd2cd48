"""A scheduler's request as the tree's memory management reads it; its KV record is the tree's own ReqKvInfo.

`origin_input_ids` and `output_ids` are array('q') as upstream's; tokens come from the plan, injective in the page
keys, so the radix tree meets the same prefixes as the reference. Sessions, LoRA, multimodal inputs and beams are
absent, and say so with upstream's own "absent" values.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from stress.engine.contract import RequestSpec


def token_array(tokens: np.ndarray) -> array:
    """int64[n] -> array('q') of the same bytes."""
    out = array("q")
    out.frombytes(np.ascontiguousarray(tokens, dtype=np.int64).tobytes())
    return out


class SglangRequest:
    def __init__(self, spec: RequestSpec, kv: Any) -> None:
        self.spec = spec
        self.rid = str(spec.rid)
        self.kv = kv
        self.origin_input_ids = token_array(spec.tokens(0, spec.prompt_tokens))
        self.output_ids = array("q")
        self.extra_key = str(spec.namespace) if spec.namespace else None
        self.is_done = False
        self.extend_end = self.fill_len = spec.prompt_tokens
        self.prefix_len = 0
        self.swa_from = 0  # the first position that has an SWA side of its own, or found one
        self.prefix_indices: Any = None
        self.priority = 0
        self.host_hit_length = self.swa_host_hit_length = self.mamba_host_hit_length = 0
        self.swa_prefix_lock_released = self.skip_radix_cache_insert = self.is_retracted = False
        self.cache_salt = self.session = self.session_id = self.last_node = None
        self.lock = self.lock_receipt = self.finished_reason = self.beam_group = None
        self.multimodal_inputs = self.lora_id = self.kv_rotation_base = None
        self.swa_branching_seqlen = self.mamba_branching_seqlen = None
        self.swa_uuid_for_lock = self.finished_len = None

    @property
    def full_untruncated_fill_ids(self) -> array:
        return self.origin_input_ids + self.output_ids

    fill_ids = full_untruncated_fill_ids

    def get_fill_ids(self) -> array:
        return self.full_untruncated_fill_ids[: self.fill_len]

    def refresh_fill_ids(self) -> None:
        self.fill_len = self.seqlen

    def finished(self) -> bool:
        return self.is_done

    @property
    def seqlen(self) -> int:
        return len(self.origin_input_ids) + len(self.output_ids)

    def owned_kv_len(self) -> int:
        return self.kv.kv_committed_len

    effective_kv_committed_len = owned_kv_len

    def _compute_max_prefix_len(self, input_len: int) -> int:
        return input_len - 1

    def learn_outputs(self) -> None:
        """The last committed position's token has given the next one: outputs reach one beyond the KV."""
        known = self.seqlen
        if self.kv.kv_committed_len >= len(self.origin_input_ids) and known <= self.kv.kv_committed_len:
            self.output_ids.extend(token_array(self.spec.tokens(known, self.kv.kv_committed_len + 1)))
