"""What SGLang does differently from release to release: the reference's switches, each with its source.

The defaults are those of 0.5.22 and 0.5.23, but for `cursor_moved`: an arm of ours shows the fault that moving the
cursor screens off. `HABITS` has what a shipped release does; docs/agreement.md says how far that has been shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Habits:
    cursor_moved: bool = False
    """A load that skips SWA moves the window cursor behind itself (sgl-project/sglang#38269)."""

    asks_swa_where_paged: bool = False
    """Up to 0.5.22 only a ring says that SWA is not restored: with paged SWA a hit is gated by its window, and a
    linker must have the window stored, whatever it stores (`_skip_swa`, `is_swa_req_ring`)."""

    inserts_loads_at_once: bool = False
    """Up to 0.5.21 a load is in the tree before it has landed, pinned until then (`_queue_load`); later it is private
    to its request until the request's first checkpoint (`private_load_indices`)."""

    keeps_cancelled_loads: bool = False
    """Up to 0.5.21 a load that is cancelled before it starts stays in the tree, with pages that nothing has written
    (the TODO in `release_request`); without this habit the tree hides them."""

    matches_after_insert: bool = False
    """Up to 0.5.22 a checkpoint matches its own prefix again after the insert, which renews the whole path
    (`cache_unfinished_req`, `checkpoint_into_tree`)."""

    checkpoint_stores: bool = True
    """A running request's checkpoint is offloaded. Up to 0.5.21 one of an unfinished prompt (`chunked=True`) is not:
    its nodes go out with the chain of a later insert (`_inc_hit_count_and_check`)."""


_UP_TO_0_5_21 = Habits(
    cursor_moved=True,
    asks_swa_where_paged=True,
    inserts_loads_at_once=True,
    keeps_cancelled_loads=True,
    matches_after_insert=True,
    checkpoint_stores=False,
)

HABITS = {
    "0.5.20": _UP_TO_0_5_21,
    "0.5.21": _UP_TO_0_5_21,
    "0.5.22": Habits(cursor_moved=True, asks_swa_where_paged=True, matches_after_insert=True),
    "0.5.23": Habits(cursor_moved=True),
}
