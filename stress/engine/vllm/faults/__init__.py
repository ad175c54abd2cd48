"""Named faults on vLLM's own objects: fault -> what it overrides of the calls, of the verbs or of the copies.

One override a file. An override of the calls may put a wrapper around a method of the release's block pool, its prefix
map or a group's manager, on that one instance: what the release does otherwise stays as it is. What a fault is called
here, and which rule sees it: stress.fault_forms.
"""

from __future__ import annotations

from stress.engine.vllm.faults.f05_key_kept import KeyKept
from stress.engine.vllm.faults.f11_frontier_too_far import FrontierTooFar
from stress.engine.vllm.faults.f13_slots_ahead_left_out import SlotsAheadLeftOut
from stress.engine.vllm.faults.f14_abort_before_batch import AbortBeforeBatch
from stress.engine.vllm.faults.f15_found_before_it_came import FoundBeforeItCame
from stress.engine.vllm.faults.f16_short_load_whole import ShortLoadWhole
from stress.engine.vllm.faults.f17_pin_given_up import PinGivenUp
from stress.engine.vllm.faults.f22_key_without_salt import KeyWithoutSalt
from stress.engine.vllm.faults.f23_not_rolled_back import NotRolledBack
from stress.engine.vllm.faults.f26_named_twice import NamedTwice
from stress.engine.vllm.faults.f27_hit_taken_late import HitTakenLate
from stress.engine.vllm.faults.f28_keys_not_taken_back import KeysNotTakenBack

CALLS_FAULTS: dict[str, type] = {
    "F05": KeyKept,
    "F11": FrontierTooFar,
    "F13": SlotsAheadLeftOut,
    "F22": KeyWithoutSalt,
    "F26": NamedTwice,
    "F27": HitTakenLate,
}
ENGINE_FAULTS: dict[str, type] = {
    "F14": AbortBeforeBatch,
    "F15": FoundBeforeItCame,
    "F23": NotRolledBack,
    "F28": KeysNotTakenBack,
}
OFFLOAD_FAULTS: dict[str, type] = {
    "F16": ShortLoadWhole,
    "F17": PinGivenUp,
}
