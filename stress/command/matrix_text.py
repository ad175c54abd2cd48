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
        clean = "clean" if twin["trigger_reached"] and not twin["findings"] else "NOT CLEAN"
        if not twin["trigger_reached"]:
            clean = "NOT REACHED"
        table.add_row(row["fault"], row["pool_state"], *cells, clean, "yes" if row["holds"] else "NO")
    console = Console(width=200, highlight=False, soft_wrap=True)
    console.print(table)
    for state in ("idle", "loaded"):
        these = [row for row in rows if row["pool_state"] == state]
        caught = sum(row["upstream_assert"] for row in these)
        found = sum(row["holds"] for row in these)
        console.print(
            f"{state}: upstream's assertions caught {caught} of {len(these)}, the rules {found} of {len(these)}"
        )


def _since(operation: int | None, acted_at: int | None) -> str:
    if operation is None:
        return ""
    return str(operation) if acted_at is None else f"{operation - acted_at:+d}"
