"""Run as a script, with a tree's root: lends all 64 pages of its paged allocator after one was given up twice.

    python tests/lmcache/given_up_twice_questions.py ROOT [FAULT]

FAULT is F25, or dry:F25 for the clean twin. Request 0 gets one page and ends; requests 1 and 2 then ask for 64 pages
and for one. Prints one JSON line: how many pages were lent in all, which of them twice and to whom, whether the two are
one memory, what the allocator's own consistency check says, and the findings.
"""

import json
import sys
from pathlib import Path

import numpy as np

from allocator.faults.log import FaultLog
from stress.check.shadow import Ledger
from stress.config import load_config
from stress.engine.contract import RequestSpec
from stress.engine.lmcache.build import build_lmcache
from stress.operation import Kind, Operation
from stress.probe import Probe

PAGES = 64


class Client:
    """Operations of the engine under watch, numbered from 1."""

    def __init__(self, engine, faults) -> None:
        self.engine, self.faults, self.number = engine, faults, 0
        self.ledger = Ledger(engine.pools, engine.edges, 2)
        self.probe = Probe(engine, self.ledger, "full")

    def do(self, kind, rows, verb, *arguments):
        self.number += 1
        self.faults.operation = self.number
        self.probe.begin(Operation(self.number, kind, 0, rows))
        answer = None
        try:
            result = verb(*arguments)
            answer = () if result is None else (int(result),) if kind is Kind.EXTEND else (0, 0)
        finally:
            self.probe.end(answer)
        return result

    def start(self, rid, tokens) -> bool:
        """A request that has its whole prompt's slots and tokens. False: no room."""
        spec = RequestSpec(
            rid, 0, tokens, 1, np.arange(1, tokens + 2) + rid * 1000, lambda lo, hi: np.arange(lo, hi)
        )
        self.engine.open(spec)
        self.probe.open(spec)
        if self.do(Kind.ADMIT, ((rid, 0),), self.engine.admit, rid, 0) is None:
            return False
        if not self.do(Kind.EXTEND, ((rid, tokens),), self.engine.extend, [(rid, tokens)]):
            return False
        self.do(Kind.COMMIT, ((rid, tokens),), self.engine.commit, [(rid, tokens)])
        return True

    def finish(self, rid) -> None:
        self.do(Kind.FINISH, ((rid, 0),), self.engine.finish, rid)


def main(root: str, fault: str = "F25") -> None:
    faults = FaultLog(*((), ("F25",)) if fault.startswith("dry:") else (("F25",),))
    config = load_config("lmcache", [f"pool.full_pages={PAGES}"])
    engine = build_lmcache(config, config.arms.named["lmcache"], Path(root), "cpu", None, faults=faults)
    client, size = Client(engine, faults), engine.page_size
    client.start(0, size)
    client.finish(0)
    free = engine.pool.free_pages()
    started = [client.start(1, PAGES * size), client.start(2, size)]
    print(json.dumps({"free": free, "started": started, **told(client)}))


def told(client: Client) -> dict:
    engine, pool = client.engine, client.engine.pool
    tables = {rid: engine.table(rid).tolist() for rid in engine.running()}
    lent = [page for table in tables.values() for page in table]
    twice = sorted({page for page in lent if lent.count(page) > 1})
    owners = [rid for rid, table in tables.items() if set(twice) & set(table)]
    return {
        "pages": pool.pages,
        "lent": len(lent),
        "twice": twice,
        "owners": owners,
        "one_memory": one_memory(engine, owners) if len(owners) > 1 else None,
        "memcheck": pool.target.memcheck(),
        "another_page": pool.lend(1) is not None,
        "acted": client.faults.reached,
        "findings": client.ledger.findings,
        "kept": {
            finding.rule: [finding.operation, finding.message, finding.history]
            for finding in client.ledger.kept
        },
        "crashed": client.ledger.crashed,
    }


def one_memory(engine, owners: list[int]) -> bool:
    """Whether what one of the two writes is what the other reads."""
    first, second = (engine._holders[rid].pages for rid in owners)
    page = second[0]
    (same,) = [one for one in first if engine.pool.page_of(one) == engine.pool.page_of(page)]
    same.tensor.fill_(1)
    page.tensor.fill_(2)
    return bool((same.tensor == 2).all())


if __name__ == "__main__":
    main(*sys.argv[1:])
