"""Runs the matrix: which cells there are, in which processes they run, and the rows in the catalogue's order.

A twin watches for the triggers of all faults of its base at once, so a base has one twin in each pool state, and one
more for each set of overrides that a fault needs. Cells are independent: as many processes as there are cores, each a
fresh one of a fork server.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from stress.matrix.base import POOL_STATES, base_config
from stress.matrix.cell import Cell, run_cell
from stress.matrix.row import make_row
from stress.matrix.rule_off import Trial, by_rule, trial_document, trials_of
from stress.matrix.subject import REFERENCE, Subject

INTERRUPTED = "was interrupted"
KILLED = "lost a process, killed from outside or for want of memory: run it again, or a --fault at a time"


def rows_of(faults: list[str], subject: Subject = REFERENCE) -> list[tuple[str, str]]:
    """(fault, pool state) in the order of the table."""
    return [
        (fault, state)
        for fault in faults
        for state in POOL_STATES
        if state == "idle" or subject.facts(fault).loaded
    ]


def make_matrix(
    faults: list[str],
    on_row: Callable[[dict[str, Any]], None] = lambda _row: None,
    each_rule_off: bool = False,
    on_trial: Callable[[Trial, dict[str, Any], int], None] = lambda _trial, _document, _total: None,
    subject: Subject = REFERENCE,
) -> dict[str, Any]:
    """The document of the matrix. `on_row` gets each row as soon as it and those before it are there.

    With `each_rule_off` it has what each rule is needed for; `on_trial` gets each row without a rule, and how many
    there are. `ended_early`: why not all of that was made: INTERRUPTED, KILLED, or what the subject's tree has not that
    a row needs; else null.
    """
    rows: list[dict[str, Any]] = []
    document: dict[str, Any] = {"schema": 1, "ended_early": None, "rows": rows}
    tried: list[tuple[Trial, dict[str, Any]]] = []
    try:
        with _processes() as pool:
            for row in _run(pool, faults, subject):
                rows.append(row)  # first, for an interruption may come while it is told
                on_row(row)
            trials = trials_of(rows) if each_rule_off else []
            for trial, trial_row in _try(pool, trials, subject):
                tried.append((trial, trial_row))
                on_trial(trial, trial_row, len(trials))
    except KeyboardInterrupt:
        document["ended_early"] = INTERRUPTED
    except BrokenProcessPool:
        document["ended_early"] = KILLED
    except (ValueError, ImportError) as error:
        if subject.tree is None:
            raise  # the reference refuses nothing: a defect
        document["ended_early"] = f"can't be made of {subject.target}: {error}"
    return document | ({"rules": by_rule(tried)} if each_rule_off else {})


@contextlib.contextmanager
def _processes() -> Iterator[ProcessPoolExecutor]:
    """The workers; whatever ends the block early ends them at once, and what waits for them is not run."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stress.matrix.cell", "stress.engine.reference"])
    others = set(multiprocessing.active_children())
    # Not with max_tasks_per_child: when the first workers are used up, CPython waits for ever (python/cpython#115634).
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: no task can come from a parent that was killed, and no end either."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run(pool: ProcessPoolExecutor, faults: list[str], subject: Subject) -> Iterator[dict[str, Any]]:
    rows, facts = rows_of(faults, subject), {fault: subject.facts(fault) for fault in faults}
    twins: dict[tuple[str, str, tuple[str, ...]], Future[Cell]] = {}
    cells: dict[tuple[str, str], Future[Cell]] = {}
    for fault, state in rows:
        base, needs = facts[fault].config, facts[fault].needs
        if (base, state, needs) not in twins:
            watched = [
                other for other in faults if (facts[other].config, facts[other].needs) == (base, needs)
            ]
            dry = f"dry:{'+'.join(watched)}"
            twins[base, state, needs] = pool.submit(_cell, base, state, dry, needs, subject)
        cells[fault, state] = pool.submit(_cell, base, state, fault, needs, subject)
    for fault, state in rows:
        twin = twins[facts[fault].config, state, facts[fault].needs].result()
        yield make_row(fault, state, cells.pop((fault, state)).result(), twin, subject)


def _try(
    pool: ProcessPoolExecutor, trials: list[Trial], subject: Subject
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    documents = []
    for trial in trials:
        facts = subject.facts(trial.fault)
        needs = (*facts.needs, *trial.overrides)
        documents.append(pool.submit(_trial, facts.config, needs, trial, subject))
    for trial, document in zip(trials, documents, strict=True):
        yield trial, document.result()


def _cell(base: str, state: str, fault: str, needs: tuple[str, ...], subject: Subject) -> Cell:
    return run_cell(base_config(base, state, fault, needs, subject), subject.project, subject.tree)


def _trial(base: str, needs: tuple[str, ...], trial: Trial, subject: Subject) -> dict[str, Any]:
    """Its document, made where it was run: the operations of so many rows need not travel."""
    return trial_document(trial, _cell(base, trial.pool_state, trial.fault, needs, subject), subject)
