"""What a probe watches an engine with, by what the engine observes: one record for the probe to go by.

Pages that are shared by count, in a table a group, are watched by other parts than a pool with a tree above it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stress.check.shadow import Ledger
from stress.content import Content, GroupContent
from stress.engine.contract import Engine
from stress.engine.scheduling import schedules
from stress.probe.allocator_watch import Watch
from stress.probe.block_watch import BlockWatch
from stress.probe.cache_watch import CacheWatch
from stress.probe.group_watch import GroupWatch
from stress.probe.key_watch import KeyWatch
from stress.probe.linker_watch import LinkerWatch
from stress.probe.object_watch import ObjectWatch
from stress.probe.offload_watch import OffloadWatch
from stress.probe.publish_watch import PublishWatch
from stress.probe.request_watch import RequestWatch
from stress.probe.row_watch import RowWatch
from stress.probe.step_watch import StepWatch


@dataclass(slots=True)
class Watches:
    """None: the engine has not what would be watched, or `content` is off."""

    watch: Watch | BlockWatch | ObjectWatch
    linker: LinkerWatch | None
    requests: RequestWatch | GroupWatch
    rows: RowWatch | None
    locks: CacheWatch | None
    keys: KeyWatch | None
    content: Content | GroupContent | None
    steps: StepWatch | None


def watches_of(engine: Engine, ledger: Ledger, content: str, bytes_per_token: int, closely: int) -> Watches:
    """The arguments are those of `Probe`."""
    seen = engine.observes
    counted = "references" in seen
    watch = _watch_of(engine, ledger)
    watch.engine = engine
    watch.closely = closely
    moves = engine.linker() if "transfers" in seen else None
    linker = LinkerWatch(moves, watch, closely) if moves is not None and not counted else None
    requests = (GroupWatch if counted else RequestWatch)(engine, watch)
    rows = _rows_of(engine, watch) if "row_memory" in seen else None
    locks = CacheWatch(engine.lock_keeper(), watch, closely) if "locks" in seen else None
    keys = KeyWatch(engine, watch, watch.source.name) if "keys" in seen else None
    stamps = None
    if content != "off" and "content" in seen:
        told = {"every_slot": content == "full", "bytes_per_token": bytes_per_token, "closely": closely}
        stamps = GroupContent(engine, watch, **told) if counted else Content(engine, watch, linker, **told)
    if "publications" in seen:
        PublishWatch(engine.allocators().block_pool, tuple(group.name for group in engine.groups), watch)
    if moves is not None and counted:
        OffloadWatch(moves, watch, stamps)
    steps = StepWatch(engine, watch, requests, stamps) if schedules(engine) else None
    return Watches(watch, linker, requests, rows, locks, keys, stamps, steps)


def _watch_of(engine: Engine, ledger: Ledger) -> Watch | BlockWatch | ObjectWatch:
    if "references" not in engine.observes:
        return Watch(engine.allocators(), engine.pools, engine.edges, ledger)
    if "page_objects" in engine.observes:
        return ObjectWatch(engine.allocators(), engine.pools[0], ledger)
    groups = tuple(group.name for group in engine.groups)
    return BlockWatch(engine.allocators(), engine.pools[0], groups, ledger)


def _rows_of(engine: Engine, watch: Watch) -> RowWatch:
    named = watch.edge.target
    shape = next(shape for shape in engine.pools if shape.name == named)
    return RowWatch(engine.row_keeper(), shape, watch)
