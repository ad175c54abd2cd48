"""Run as a script, with a tree's root and what goes wrong: a rank of `smoke` on it, and what the ledger says.

    python tests/sglang/content_questions.py ROOT clean|window|row [KEY=VALUE ...]

clean: nothing is changed. window: the scheduler asks the cache to evict a window as if two pages more had been written.
row: two requests' rows swap a page, once, so that all counts and tables stay in order. Prints one JSON line: rules
watched, findings by rule, the first finding.
"""

import itertools
import json
import sys

from stress.config import load_config
from stress.engine.sglang.calls import Calls
from stress.engine.sglang.engine import SglangEngine
from stress.matrix.drive import drive

SETTINGS = ("layout.tp_size=1", "layout.dp_size=1", "check.require=[]", "workload.requests=60")


def evict_too_far() -> None:
    def evict_window(self, request, interval_tokens):
        written = request.seqlen - 1 + 2 * self.page_size
        self._during("window", self.cache.evict_sliding_windows, request, written, eviction_interval=1)

    Calls.evict_window = evict_window


def swap_two_pages() -> None:
    inner, done = SglangEngine.results_begin, []

    def results_begin(self):
        inner(self)
        size = self.page_size
        for pair in [] if done else itertools.combinations(self._running.values(), 2):
            left_window = min(request.kv.kv_committed_len for request in pair) // size - 4
            one, other = (request.spec.keys for request in pair)
            place = next((at for at in range(left_window) if one[at] != other[at]), None)
            if place is not None:
                done.append(True)
                part = slice(place * size, (place + 1) * size)
                table = self.calls.rows.req_to_token
                mine, theirs = (table[request.kv.req_pool_idx, part] for request in pair)
                kept = mine.clone()
                mine.copy_(theirs)
                theirs.copy_(kept)
                return

    SglangEngine.results_begin = results_begin


WRONG = {"clean": lambda: None, "window": evict_too_far, "row": swap_two_pages}


def main(root: str, wrong: str, *overrides: str) -> None:
    WRONG[wrong]()
    config = load_config("smoke", [*SETTINGS, "arms.patched.target=sglang==0.5.23", *overrides])
    (result,) = drive(config, "patched", lambda rank: lambda line: None, root)
    first = result.first_finding
    print(
        json.dumps(
            {
                "status": result.status,
                "crashed": result.checker_crashed,
                "watched": result.rules_watched,
                "findings": result.findings,
                "first": first and {"rule": first.rule, "pool": first.pool, "message": first.message},
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
