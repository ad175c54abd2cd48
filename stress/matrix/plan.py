"""Runs the matrix: which cells there are, in which processes they run, and the rows in the catalogue's order.

A twin watches for the triggers of all faults of its base at once, so a base has one twin in each pool state, and one
more for each set of overrides that a fault needs. Cells are independent: as many processes as there are cores, each a
fresh one of a fork server.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, POOL_STATES, base_config
from stress.matrix.cell import Cell, run_cell
from stress.matrix.row import make_row


def rows_of(faults: list[str]) -> list[tuple[str, str]]:
    """(fault, pool state) in the order of the table."""
    return [
        (fault, state) for fault in faults for state in POOL_STATES if state == "idle" or FAULTS[fault].loaded
    ]


def make_matrix(
    faults: list[str], on_row: Callable[[dict[str, Any]], None] = lambda _row: None
) -> dict[str, Any]:
    """The document of the matrix. `on_row` gets each row as soon as it and those before it are there."""
    rows = []
    for row in _run(faults):
        on_row(row)
        rows.append(row)
    return {"schema": 1, "rows": rows}


def _run(faults: list[str]) -> Iterator[dict[str, Any]]:
    rows = rows_of(faults)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stress.matrix.cell", "stress.engine.reference"])
    # Not with max_tasks_per_child: when the first workers are used up, CPython waits for ever (python/cpython#115634).
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        twins: dict[tuple[str, str, tuple[str, ...]], Future[Cell]] = {}
        cells: dict[tuple[str, str], Future[Cell]] = {}
        for fault, state in rows:
            base, needs = FAULTS[fault].config, FAULTS[fault].needs
            if (base, state, needs) not in twins:
                watched = [
                    other for other in faults if (FAULTS[other].config, FAULTS[other].needs) == (base, needs)
                ]
                dry = f"dry:{'+'.join(watched)}"
                twins[base, state, needs] = pool.submit(_cell, base, state, dry, needs)
            cells[fault, state] = pool.submit(_cell, base, state, fault, needs)
        for fault, state in rows:
            twin = twins[FAULTS[fault].config, state, FAULTS[fault].needs].result()
            yield make_row(fault, state, cells.pop((fault, state)).result(), twin)


def _cell(base: str, state: str, fault: str, needs: tuple[str, ...]) -> Cell:
    return run_cell(base_config(base, state, fault, needs), ARM)
