"""The marks: what a run can be required to have done, for it would mean little otherwise."""

# Of an engine that schedules by itself: clients left requests in that state.
OF_SCHEDULER = (
    "aborted_waiting",
    "aborted_loading",  # waiting for a load
    "aborted_prefill",
    "aborted_decode",
    "aborted_preempted",
    "aborted_storing",  # with pages that were being stored
)

MARKS = (
    "linker_loaded_without_swa",  # a load-back gave FULL slots and no SWA peers
    "load_back",  # a prefix came back from the external store
    "swa_released_out_of_window",
    "full_evicted",  # a cached leaf went
    "swa_evicted",  # a cached node became an SWA tombstone
    "free_group_with_unmapped",  # a page without a peer was asked back inside a free group
    "chunk_crossed_page",  # one prefill chunk went over a page's edge
    "spec_tail_returned",  # whole pages reserved for drafts came back at the end
    "cancelled",
    "offloaded",  # new pages reached the external store
    "load_failed",  # a load did not bring all its pages (linker.faults)
    "offload_failed",
    "retracted",
    "tombstone_recovered",
    "node_split",
    "idle_rank",  # took part in an exchange as idle while a peer had tokens
    *OF_SCHEDULER,
)
