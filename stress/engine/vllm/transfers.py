"""The scheduler's connector and its workers: what a step asks them to copy, and what they tell with its answer.

The connector is the tree's own, made by the scheduler. Answers of several workers are joined by the tree's own
aggregator, which counts how many of them have told a load's end; the ends of stores the connector counts by itself.
Newer releases hold pages for a store when a request ends, and ask for it in the next schedule.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stress.engine.vllm.calls import Calls
from stress.engine.vllm.worker_side import Workers


class Transfers:
    """`scheduler`: the tree's, with a connector. `count`: workers that tell the end of a copy."""

    def __init__(self, calls: Calls, scheduler: Any, workers: Workers, count: int) -> None:
        self._calls, self._scheduler, self.workers = calls, scheduler, workers
        self._joined = None
        if count > 1:
            aggregator = calls.tree.connector_utils.KVOutputAggregator
            self._joined = aggregator.from_connector(scheduler.connector, count)
        self._held: list[int] | None = None  # by the request's end at hand
        self._watch_ends(scheduler.connector)
        # Numbers for a server's metrics, whose classes are not imported; nobody reads them here.
        scheduler.connector.get_kv_connector_stats = lambda: None

    def _watch_ends(self, connector: Any) -> None:
        """Which pages the end of a request holds."""
        ends, touch = connector.request_finished_all_groups, self._calls.pool.touch

        def ending(*args, **kwargs):
            self._held = []
            try:
                return ends(*args, **kwargs)
            finally:
                held, self._held = self._held, None
                if held:
                    self.workers.hold(held)

        def touching(blocks, *args, **kwargs):
            blocks = list(blocks)
            if self._held is not None:
                self._held += [block.block_id for block in blocks]
            return touch(blocks, *args, **kwargs)

        connector.request_finished_all_groups, self._calls.pool.touch = ending, touching

    def begin(self, output: Any, now_us: int) -> list[int]:
        """The copies of a schedule begin. Returns the requests that wait for a load from now on."""
        return [int(name) for name in self.workers.begin(output.kv_connector_metadata, now_us)]

    def answer(self, now_us: int) -> Any:
        """The KVConnectorOutput of the step that is over."""
        told = self.workers.answers(now_us)
        if self._joined is None:
            return told[0]
        answers = [SimpleNamespace(kv_connector_output=one) for one in told]
        joined = self._joined.aggregate(answers).kv_connector_output
        joined.finished_recving = tuple(sorted(joined.finished_recving or (), key=int))
        return joined

    def pending_us(self, now_us: int) -> int | None:
        """When something is next to be told, or asked for: of requests that have ended something may still be stored,
        in the schedule after their end."""
        if self.workers.waits_for_pass or self._scheduler.finished_req_ids:
            return now_us
        return self.workers.pending_us()

    def of(self, rid: int) -> str:
        """load: the request waits for one; store: pages of its tables are being stored; else nothing."""
        if self.workers.is_loading(str(rid)):
            return "load"
        return "store" if self.workers.are_stored(self._calls.pages_of(str(rid))) else ""
