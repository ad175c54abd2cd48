"""The matrix as a table: a row a fault and pool state, a column a detector, in a cell the operation at which it fired.

Operations are counted from the one at which the fault first acted: `+0` is the faulty operation itself.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from stress.verdict_reasons import sorted_rules

OTHERS = ("assert", "error", "drain", "digest")


def print_matrix(document: dict[str, Any]) -> None:
    """The table and, below it, what upstream's own assertions caught."""
    rows = document["rows"]
    fired = {one["detector"] for row in rows for one in row["fired"]}
    columns = [*sorted_rules({name for name in fired if name.startswith("I")}), *OTHERS]
    table = Table(box=None, pad_edge=False)
    for name in ("fault", "pool", *columns, "twin", "as promised"):
        table.add_column(name, justify="right" if name in columns else "left", no_wrap=True)
    for row in rows:
        at = {one["detector"]: one["operation"] for one in row["fired"]}
        cells = [_since(at.get(name), row["acted_at"]) for name in columns]
        twin = row["clean_twin"]
        clean = "NOT CLEAN" if twin["failed"] else "clean" if twin["trigger_reached"] else "NOT REACHED"
        table.add_row(row["fault"], row["pool_state"], *cells, clean, "yes" if row["holds"] else "NO")
    console = Console(width=200, highlight=False, soft_wrap=True)
    console.print(table)
    for state in ("idle", "loaded"):
        these = [row for row in rows if row["pool_state"] == state]
        if not these:
            continue
        caught = sum(row["upstream_assert"] for row in these)
        found = sum(row["holds"] for row in these)
        console.print(
            f"{state}: upstream's assertions caught {caught} of {len(these)}, the rules {found} of {len(these)}"
        )


def print_rules(document: dict[str, Any]) -> None:
    """What each rule is needed for, and which rules no row is lost without."""
    run = [(row["fault"], row["pool_state"]) for row in document["rows"]]
    table = Table(box=None, pad_edge=False)
    for name in (
        "off",
        "rows lost",
        "of these, where no rule fires then",
        "rows kept by another promised rule",
    ):
        table.add_column(name)
    spare = []
    for one in document["rules"]:
        lost = [row for row in one["rows"] if row["lost"]]
        kept = [row for row in one["rows"] if row["expected"] and not row["lost"]]
        unseen = [row for row in lost if not row["in_time"]]
        if lost or kept:
            table.add_row(one["rule"], *(_named(rows, run) or "-" for rows in (lost, unseen, kept)))
        if not lost:
            spare.append(one["rule"])
    console = Console(width=200, highlight=False, soft_wrap=True)
    console.print()
    console.print(table)
    if spare:
        console.print(f"none of these rows is lost without {', '.join(spare)}")


def _named(rows: list[dict[str, Any]], run: list[tuple[str, str]]) -> str:
    """`F01, F11 idle`: a fault alone where these are all the rows of it that were run."""
    states: dict[str, list[str]] = {}
    for row in rows:
        states.setdefault(row["fault"], []).append(row["pool_state"])
    names = []
    for fault, found in states.items():
        everywhere = found == [state for other, state in run if other == fault]
        names.append(fault if everywhere else f"{fault} {' '.join(found)}")
    return ", ".join(names)


def _since(operation: int | None, acted_at: int | None) -> str:
    if operation is None:
        return ""
    return str(operation) if acted_at is None else f"{operation - acted_at:+d}"
