"""`kvstress repro`: the three-row table of each release strategy. Exit 0 where all rows are as promised."""

from __future__ import annotations

import click
import msgspec

TARGETS = ("reference",)


@click.command()
@click.option("--target", "targets", multiple=True, metavar="T", help="What to drive; default: reference.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def repro(targets: tuple[str, ...], as_json: bool) -> int:
    """Free a segment with and without SWA peers, by each release strategy.

    Exit 0: every row is as promised (unpatched asserts twice, the filters never). Exit 1: one is not.
    """
    for target in targets:
        if target not in TARGETS:
            raise click.UsageError(f"--target {target}: unknown target; there is {', '.join(TARGETS)}")
    from stress.repro import SCHEMA, as_promised, repro_table

    rows = [row for target in dict.fromkeys(targets or TARGETS) for row in repro_table(target)["rows"]]
    promised = [as_promised(row) for row in rows]
    if as_json:
        click.echo(msgspec.json.encode({"schema": SCHEMA, "rows": rows}))
    else:
        _print_table(rows, promised)
    return 0 if all(promised) else 1


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
    Console(width=100, highlight=False).print(table)
