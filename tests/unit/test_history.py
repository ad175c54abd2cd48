"""Histories read like a page's life, stay short, and outlive the journal."""

import numpy as np

from stress.check.event import Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.history import HISTORY_LINES, JOURNALLED, History
from stress.check.state import LOOKED_AT, Shadow

POOLS = (PoolShape("full", 16, 4, 0), PoolShape("swa", 16, 4, 0))
EDGES = (EdgeShape("full", "swa"),)


class Script:
    def __init__(self, **options):
        self.shadow = Shadow(POOLS, EDGES)
        self.history = History(self.shadow, **options)

    def tell(self, operation, kind, pool, pages, peers=None, rid=-1, word="extend", step="", method="m"):
        peers = None if peers is None else np.array(peers)
        event = Event(
            kind, pool, np.array(pages), peers, Cause(operation, word, rid, step), 1, method, operation
        )
        if kind in JOURNALLED:
            self.history.record(event)
        if kind in LOOKED_AT and peers is None:
            self.shadow.pools[pool].look(event.pages)
        self.shadow.apply_of(kind)(event)


def life_of_a_pair(script):
    script.tell(1, EventKind.LEND, "full", [3, 4], rid=7, step="prompt")
    script.tell(1, EventKind.LEND, "swa", [5, 6], rid=7, step="prompt")
    script.tell(1, EventKind.BIND, "swa", [3, 4], [5, 6], rid=7, method="alloc_extend")
    script.tell(2, EventKind.INTENT, "swa", [3, 4], [5, 6], rid=7, word="finish", method="free_segment")
    script.tell(2, EventKind.INTENT, "full", [3, 4], rid=7, word="finish", method="free_segment")
    script.tell(3, EventKind.RETURN, "swa", [5, 6], word="results_end")
    script.tell(3, EventKind.RETURN, "full", [3, 4], word="results_end")


def test_the_life_of_a_source_page_and_of_its_peer():
    script = Script()
    life_of_a_pair(script)
    assert script.history.lines("full", 4) == [
        "1 lent full page 4 to request 7 (prompt)",
        "1 mapped full page 4 to swa page 6 (extend of request 7)",
        "2 free_segment read swa page 6 at full page 4 (finish of request 7)",
        "2 free_segment asked full page 4 back (finish of request 7)",
        "3 returned full page 4 (results_end)",
    ]
    assert script.history.lines("swa", 6) == [
        "1 lent swa page 6 to request 7 (prompt)",
        "1 mapped full page 4 to swa page 6 (extend of request 7)",
        "2 free_segment read swa page 6 at full page 4 (finish of request 7)",
        "3 returned swa page 6 (results_end)",
    ]


def test_an_owner_known_from_the_table_is_named():
    script = Script()
    script.tell(1, EventKind.LEND, "full", [1, 2], word="reserve", step="draft reserve")
    assert script.history.lines("full", 2) == ["1 lent full page 2 (draft reserve)"]
    script.tell(1, EventKind.HOLD, "full", [1, 2], rid=9, word="reserve")
    assert script.history.lines("full", 2) == ["1 lent full page 2 to request 9 (draft reserve)"]


def test_padding_is_followed_to_the_page_whose_entry_was_read():
    script = Script()
    script.tell(1, EventKind.LEND, "full", [3], rid=7, step="linker load")
    script.tell(2, EventKind.INTENT, "swa", [3], [0], rid=7, word="checkpoint", method="free_swa_segment")
    assert script.history.reader_of("swa", 0) == ("full", 3)
    assert script.history.reader_of("swa", 3) is None and script.history.reader_of("full", 0) is None
    script.tell(3, EventKind.RETURN, "swa", [0], word="results_end")
    script.tell(4, EventKind.LEND, "swa", [0], rid=8)
    assert script.history.lines("full", 3, "swa", 0) == [
        "1 lent full page 3 to request 7 (linker load)",
        "2 free_swa_segment read no peer (checkpoint of request 7)",
        "3 returned swa page 0 (results_end)",
        "4 lent swa page 0 to request 8 (extend)",
    ]


def test_a_long_life_keeps_its_first_line_and_the_latest():
    script = Script()
    for operation in range(1, 61):
        kind = EventKind.LEND if operation % 2 else EventKind.RETURN
        script.tell(operation, kind, "full", [1], rid=operation)
    lines = script.history.lines("full", 1)
    assert len(lines) == HISTORY_LINES
    assert (
        lines[0].startswith("1 lent")
        and lines[1] == "... 41 lines left out ..."
        and lines[-1].startswith("60 ")
    )


def test_the_last_lend_is_known_when_the_journal_has_forgotten_it():
    script = Script(events=2)
    script.tell(1, EventKind.LEND, "full", [1], rid=7, step="prompt")
    for operation in range(2, 6):
        script.tell(operation, EventKind.LEND, "full", [operation], rid=8)
    assert script.history.lines("full", 1) == ["1 lent full page 1 to request 7 (prompt)"]
    assert script.history.lines("full", 9) == [] and script.history.lines("full", -1) == []
