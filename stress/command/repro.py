"""`kvstress repro`: the three-row table of each release strategy, or of a real tree's allocator.

Exit 0 where all rows are as promised, 1 where one is not, 2 for a target to name otherwise, 3 for one that
can't be had here.
"""

from __future__ import annotations

import click
import msgspec

from stress.command.streams import remark
from stress.command.target import ask, tree_target
from stress.target.name import TargetError


@click.command()
@click.option("--target", "targets", multiple=True, metavar="T", help="What to drive; default: reference.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def repro(targets: tuple[str, ...], as_json: bool) -> int:
    """Free a segment with and without SWA peers, by each release strategy.

    T is reference, sglang, sglang==VERSION or path:DIR of an SGLang tree, with +EDIT for an edited one
    (sglang==0.5.23+filter).
    Exit 0: every row is as promised (unpatched asserts twice, the filters never). Exit 1: one is not.
    """
    rows: list[dict] = []
    for name in dict.fromkeys(targets or ("reference",)):
        found = ask(lambda name=name: _rows(name))
        if isinstance(found, int):
            return found
        rows += found
    from stress.repro import SCHEMA, as_promised

    promised = [as_promised(row) for row in rows]
    if as_json:
        click.echo(msgspec.json.encode({"schema": SCHEMA, "rows": rows}))
    else:
        _print_table(rows, promised)
    return 0 if all(promised) else 1


def _rows(name: str) -> list[dict]:
    target = tree_target(name)
    if target is None:
        from stress.repro import repro_table

        return repro_table()["rows"]
    if target.project != "sglang":
        raise TargetError(
            f"target {name!r}: repro asks SGLang's segment free; name reference, sglang==VERSION or an SGLang tree"
        )
    from stress.target.process import ask_tree
    from stress.target.store import resolve

    release = "+".join(edit.rsplit("/", 1)[-1] for edit in target.edits) or "unpatched"
    return ask_tree("stress.repro_tree", resolve(name, remark), name, release)


def _print_table(rows: list[dict], promised: list[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="free_swa_segment of 4 pages, page size 256, 16 SWA pages", box=None, pad_edge=False)
    for column in ("target", "release", "scenario", "freed", "available", "size", "outcome", "as promised"):
        table.add_column(column, justify="right" if column in ("available", "size") else "left", no_wrap=True)
    for row, kept in zip(rows, promised, strict=True):
        cells = [row["target"], row["release"], row["scenario"], str(row["freed"]), str(row["available"])]
        cells += [str(row["size"]), row["outcome"], "yes" if kept else "NO"]
        table.add_row(*(Text(cell) for cell in cells))
    Console(width=120, highlight=False).print(table)
