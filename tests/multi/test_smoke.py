"""The smoke run through the command line: one digest on every launcher, one verdict for scripts."""

from __future__ import annotations

import json

import pytest

from stress.cli import main

pytestmark = pytest.mark.multi

COMPARE = ("compare", "smoke", "--base", "unpatched", "--test", "patched", "--json")


def kvstress(capsys, *arguments: str) -> tuple[int, dict]:
    """Exit code and the one JSON document on stdout."""
    code = main(list(arguments))
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture()
def out(tmp_path):
    return lambda name: ("--out", str(tmp_path / name))


def test_inline_and_local_reproduce_and_fix_with_one_digest(capsys, out, tmp_path):
    code, inline = kvstress(capsys, *COMPARE, "--launcher", "inline", *out("inline"))
    assert code == 0
    code, local = kvstress(capsys, *COMPARE, "--launcher", "local", *out("local"))
    assert code == 0
    assert local["digest"] == inline["digest"]
    assert local["compare"]["outcome"] == "reproduced_and_fixed"
    assert (local["verdict"], local["as_expected"]) == ("fail", True)
    assert local["coverage"]["missing"] == []
    unpatched, patched = local["arms"]["unpatched"], local["arms"]["patched"]
    assert unpatched["totals"]["ranks_asserted"] == 2
    for rank in unpatched["ranks"]:
        first = rank["first_finding"]
        assert (first["rule"], first["pool"], first["page"]) == ("I1", "swa", 0)
        assert first["operation"] <= rank["first_assert"]["operation"]
        assert "linker load" in first["history"][0]
    totals = patched["totals"]
    assert totals["requests_finished"] + totals["requests_cancelled"] == 500
    assert (totals["asserts"], totals["errors"], totals["findings"]) == (0, 0, 0)
    assert json.loads((tmp_path / "local" / "verdict.json").read_text())["digest"] == local["digest"]
    assert json.loads((tmp_path / "local" / "manifest.json").read_text())["seed"] == 1


def test_lock_step_is_the_same_on_inline_and_local(capsys, out):
    small = ("--set", "layout.exchange_ms=0", "--set", "workload.requests=80", "--set", "check.require=[]")
    run = ("run", "smoke", "--arm", "patched", "--json", *small)
    code, inline = kvstress(capsys, *run, "--launcher", "inline", *out("inline"))
    assert (code, inline["verdict"]) == (0, "pass")
    code, local = kvstress(capsys, *run, "--launcher", "local", *out("local"))
    assert (code, local["verdict"]) == (0, "pass")
    assert local["digest"] == inline["digest"]
    ranks = [*inline["arms"]["patched"]["ranks"], *local["arms"]["patched"]["ranks"]]
    assert len({rank["step_plans"]["digest"] for rank in ranks}) == 1
    assert ranks[0]["step_plans"]["exchanges"] > 100
    assert local["coverage"]["reached"]["idle_rank"] > 0


def test_another_seed_has_another_digest_and_a_rerun_the_same(capsys, out):
    code, second = kvstress(
        capsys,
        "run",
        "smoke",
        "--arm",
        "patched",
        "--seed",
        "2",
        "--launcher",
        "inline",
        "--json",
        *out("two"),
    )
    assert (code, second["verdict"], second["seed"]) == (0, "pass", 2)
    code, checked = kvstress(
        capsys,
        "run",
        "smoke",
        "--arm",
        "patched",
        "--launcher",
        "local",
        "--verify-determinism",
        "--json",
        *out("v"),
    )
    assert code == 0
    assert checked["digest"] != second["digest"]


@pytest.mark.parametrize(
    ("base", "test", "code"),
    [("patched", "patched", 4), ("patched", "unpatched", 1), ("unpatched", "unpatched", 1)],
)
def test_compare_tells_scripts_by_its_exit_code(capsys, out, base, test, code):
    small = ("--set", "workload.requests=60", "--set", "check.require=[]", "--launcher", "inline", "--json")
    found, document = kvstress(
        capsys, "compare", "smoke", "--base", base, "--test", test, *small, *out("run")
    )
    assert found == code
    assert document["compare"]["exit_code"] == code
