"""Rows of the matrix with one rule off: a row whose only rule is off is lost, one that two rules hold is not."""

from __future__ import annotations

import msgspec
import pytest

from stress.command.matrix_text import print_rules
from stress.config import ConfigError, load_config
from stress.fault_catalogue import FAULTS
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import Cell, run_cell
from stress.matrix.row import make_row
from stress.matrix.rule_off import Trial, by_rule, trial_document, trials_of


def run(fault: str, name: str, *more: str) -> Cell:
    config = base_config(FAULTS[fault].config, "idle", name, (*FAULTS[fault].needs, *more))
    workload = msgspec.structs.replace(config.workload, requests=40)
    check = msgspec.structs.replace(config.check, on_finding="stop")
    return run_cell(msgspec.structs.replace(config, workload=workload, check=check), ARM)


def trials(fault: str) -> list[tuple[Trial, dict]]:
    """The fault's row, run again without each rule that fired at the faulty operation."""
    row = make_row(fault, "idle", run(fault, fault), run(fault, f"dry:{fault}"))
    assert row["holds"]
    return [(trial, trial_document(trial, run(fault, fault, *trial.overrides))) for trial in trials_of([row])]


def test_a_row_is_lost_without_the_only_rule_that_holds_it() -> None:
    ((trial, document),) = trials("F15")
    assert (trial.rule, document["expected"], document["lost"], document["in_time"]) == (
        "I17",
        True,
        True,
        [],
    )


def test_a_row_is_not_lost_without_a_rule_that_another_stands_behind() -> None:
    found = {trial.rule: (document["lost"], document["in_time"]) for trial, document in trials("F05")}
    # The catalogue expects I4, so the two others do not hold the row.
    assert found == {
        "I4": (True, ["I5", "I8"]),
        "I5": (False, ["I4", "I8"]),
        "I8": (False, ["I4", "I5"]),
    }


def test_the_table_names_rows_and_the_rules_that_none_needs(capsys) -> None:
    def row(fault: str, state: str, expected: bool, in_time: list[str], lost: bool) -> dict:
        return {
            "fault": fault,
            "pool_state": state,
            "expected": expected,
            "in_time": in_time,
            "lost": lost,
        }

    tried = [
        (Trial("I9", "F11", "idle"), row("F11", "idle", True, ["I10"], False)),
        (Trial("I9", "F11", "loaded"), row("F11", "loaded", True, [], True)),
        (Trial("I6", "F14", "idle"), row("F14", "idle", False, ["I20"], False)),
        (Trial("I20", "F14", "idle"), row("F14", "idle", True, ["I6"], True)),
    ]
    rows = [
        {"fault": fault, "pool_state": state}
        for fault, state in (("F11", "idle"), ("F11", "loaded"), ("F14", "idle"))
    ]
    print_rules({"rows": rows, "rules": by_rule(tried)})
    table = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert table[0] == ["I9", "F11", "loaded", "F11", "loaded", "F11", "idle"]
    assert table[1] == ["I20", "F14", "-", "-"]
    assert "I6," in table[2] and not {"I9,", "I20,"} & set(table[2])


def test_a_run_checks_the_rules_that_it_names_and_refuses_others() -> None:
    row = make_row("F15", "idle", run("F15", "F15", 'check.rules=["I2", "I16"]'), run("F15", "dry:F15"))
    assert {one["detector"] for one in row["fired"]} == {"I16", "digest"}
    with pytest.raises(ConfigError, match=r"check\.rules: 'I99' is no rule; the rules are I1, I2, .* I22"):
        load_config("smoke", ['check.rules=["I1", "I99"]'])
