"""The matrix: what a row must show to hold, what the table and the exit code say of one that does not."""

from __future__ import annotations

import json

import pytest

import stress.matrix.plan
from stress.cli import main
from stress.command.matrix_text import print_matrix
from stress.matrix.cell import Cell, Fired
from stress.matrix.row import make_row

ACTED = 40


def cell(*fired: tuple, reached: dict | None = None, failed: bool = True) -> Cell:
    """A run in which F06 acted on rank 0 at ACTED; `fired`: (detector, operation, noticed, rank)."""
    return Cell(
        fired=[Fired(*one) for one in fired],
        reached={"F06": {0: ACTED}} if reached is None else reached,
        findings=len(fired),
        failed=failed,
        statuses=["finished"],
        marks={},
        issued=100,
        operations={},
    )


CLEAN = cell(failed=False)


@pytest.mark.parametrize(
    ("fired", "holds"),
    [
        (("I7", 40, 40, 0), True),
        (("I7", 38, 40, 0), True),  # at its end, blamed on the one that enqueued it
        (("I7", 40, 45, 0), True),
        (("I7", 41, 41, 0), False),
        (("I7", 39, 39, 0), False),
        (("I6", 40, 40, 0), False),  # the catalogue does not expect it of F06
        (("I7", 40, 40, 1), False),  # on a rank where the fault has not acted
        (("assert", 40, 40, 0), False),
    ],
)
def test_a_row_holds_when_an_expected_rule_fired_at_the_faulty_operation(fired, holds):
    row = make_row("F06", "idle", cell(fired), CLEAN)
    assert (row["holds"], row["at_faulty_operation"]) == (holds, holds)
    assert row["upstream_assert"] == (fired[0] == "assert")


@pytest.mark.parametrize(("noticed", "holds"), [(ACTED, True), (90, True), (39, False)])
def test_a_rule_that_looks_at_boundaries_may_come_later_and_never_before(noticed, holds):
    row = make_row(
        "F20", "idle", cell(("I19", noticed, noticed, 0), reached={"F20": {0: ACTED}}), twin_of("F20")
    )
    assert row["holds"] == holds


def twin_of(fault: str, **other) -> Cell:
    return cell(reached={fault: {0: ACTED}}, failed=False)._replace(**other)


@pytest.mark.parametrize(
    ("twin", "told"),
    [
        (twin_of("F06"), "clean"),
        (twin_of("F06", findings=1, failed=True), "NOT CLEAN"),
        (twin_of("F06", failed=True), "NOT CLEAN"),  # it asserted, or raised
        (twin_of("F07"), "NOT REACHED"),
    ],
)
def test_a_row_needs_a_clean_twin_that_came_to_the_trigger(twin, told, capsys):
    row = make_row("F06", "idle", cell(("I7", ACTED, ACTED, 0)), twin)
    assert row["holds"] == (told == "clean")
    print_matrix({"rows": [row]})
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[:3] == ["F06", "idle", "+0"]
    assert f" {told} " in line
    assert line.split()[-1] == ("yes" if told == "clean" else "NO")


@pytest.mark.parametrize("holds", [True, False])
def test_the_exit_code_says_whether_every_row_holds(holds, monkeypatch, capsys):
    good = make_row("F06", "idle", cell(("I7", ACTED, ACTED, 0)), CLEAN)
    rows = [good, {**good, "fault": "F07", "holds": holds}]

    def made(faults, on_row, each_rule_off, on_trial):
        assert (faults, each_rule_off) == (["F06", "F07"], False)
        for row in rows:
            on_row(row)
        return {"schema": 1, "ended_early": None, "rows": rows}

    monkeypatch.setattr(stress.matrix.plan, "make_matrix", made)
    given = ["matrix", "--fault", "F07", "--fault", "F06"]
    assert main([*given, "--json"]) == (0 if holds else 1)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rows"] == rows
    assert printed.err.splitlines()[1].endswith("I7, found" if holds else "I7, NOT AS PROMISED")
    assert main(given) == (0 if holds else 1)
    assert f"the rules {1 + holds} of 2" in capsys.readouterr().out


def test_a_pool_state_without_a_row_is_not_summed_up(capsys):
    print_matrix({"rows": [make_row("F06", "idle", cell(("I7", ACTED, ACTED, 0)), CLEAN)]})
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["idle"]


def test_an_unknown_fault_is_one_line(capsys):
    assert main(["matrix", "--fault", "F99"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0].startswith(
        "kvstress: --fault F99: unknown fault; the faults are F01, F02"
    )


def test_a_tree_that_can_not_be_driven_ends_the_matrix_in_one_line(tmp_path, capsys):
    (tmp_path / "vllm" / "v1" / "core").mkdir(parents=True)
    assert main(["matrix", "--target", f"path:{tmp_path}", "--fault", "F26"]) == 3
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith(f"kvstress: the matrix can't be made of path:{tmp_path}: ")
    assert line.endswith("; use vLLM 0.20 or later; 0 of 2 rows were made")
