"""Arms at the same time on ranks of their own: each decides what it decides alone, and a loss stays in its arm."""

from __future__ import annotations

import json
import os

import pytest
from launch_ranks import launch_config, parallel_config
from scripted_launcher import ScriptedLauncher, run, ticking

from stress.cli import main
from stress.compare import compare_arms
from stress.coordinator import ArmsBroken
from stress.launch.contract import LaunchError, RankOutcome, by_arm
from stress.launch.inline import InlineLauncher
from stress.nightly import _rank_wall_s
from stress.record import RankFile
from stress.result import RankSpec

RANKS = {"first": "0-2", "second": "4,6-7"}  # rank 3 and 5 belong to nobody


def digests(ranks):
    return [(result.digest, result.digest_partial) for result in ranks]


def test_an_arm_hears_on_any_ranks_what_it_hears_alone(run_dir, tmp_path):
    results, seen = run(parallel_config(8, RANKS, rounds=6), run_dir, list(RANKS))
    assert [result.rank for result in results["second"]] == [4, 6, 7]
    assert [result.dp_rank for result in results["second"]] == [0, 1, 2]
    assert {state.arm for state in seen} == set(RANKS)
    assert (tmp_path / "run" / "ranks" / "second-6.jsonl").exists()
    alone, _ = run(launch_config(3, rounds=6), run_dir, ["alone"])
    assert digests(results["first"]) == digests(results["second"]) == digests(alone["alone"])


def test_a_loss_stays_in_its_arm(run_dir):
    results, seen = run(parallel_config(8, RANKS, rounds=6, **{"raise": 6}), run_dir, list(RANKS))
    assert [result.status for result in results["second"]] == ["finished", "lost", "finished"]
    assert [result.digest_partial for result in results["second"]] == [True, True, True]
    assert [(result.status, result.digest_partial) for result in results["first"]] == [
        ("finished", False)
    ] * 3
    last = {state.arm: state.lost for state in seen}
    assert last == {"first": (), "second": (6,)}


def test_an_arm_that_is_given_up_leaves_the_other_one_be(run_dir, monkeypatch):
    """Ranks 0 and 1 say nothing from the start; rank 2 beats each second and ends after 20."""
    from launch_ranks import _heartbeat

    clock = ticking(monkeypatch)
    file = RankFile(run_dir.rank_path("second", 2))

    class HalfSilent(ScriptedLauncher):
        def poll(self, timeout_s):
            clock[0] += timeout_s
            assert self.stops == 0
            file.write(_heartbeat(0))
            return [RankOutcome(rank=2, lost="the end of the test")] if clock[0] == 20 else []

    config = parallel_config(3, {"first": "0-1", "second": "2"}, rounds=1)
    results, seen = run(config, run_dir, ["first", "second"], HalfSilent(), stall_s=5)
    given_up = "no sign of life for 5 s; stopped by the coordinator"
    assert [(result.status, result.message) for result in results["first"]] == [("lost", given_up)] * 2
    assert results["second"][0].message.startswith("the end of the test")
    assert [state.lost for state in seen if state.arm == "first"] == [()] * 5 + [(0, 1)]


def test_an_arm_that_is_refused_costs_the_one_beside_it_no_finding(run_dir):
    """The ranks of "second" are refused when those of "first" have been at work for a while."""

    class RefusedLater(InlineLauncher):
        def poll(self, timeout_s):
            for _ in range(4):
                self._arms[0].turn()
            raise LaunchError("no network")

    config = parallel_config(3, {"first": "0-1", "second": "2"}, rounds=9, **{"raise": 1})
    with pytest.raises(ArmsBroken) as broken:
        run(config, run_dir, ["first", "second"], RefusedLater())
    assert broken.value.unstarted == ["second"]
    goes_on, lost = broken.value.results["first"]
    assert (goes_on.status, goes_on.requests_finished) == ("stopped", 3)
    assert goes_on.message.startswith("stopped, for another arm could not be started")
    assert lost.findings == {"I1": 1}


def test_specs_are_grouped_by_arm_and_index():
    specs = [
        RankSpec(config={}, arm=arm, rank=rank, index=index, ranks=2, seed=1)
        for arm, rank, index in (("b", 3, 1), ("a", 4, 1), ("b", 1, 0), ("a", 0, 0))
    ]
    assert {arm: [spec.rank for spec in of_arm] for arm, of_arm in by_arm(specs).items()} == {
        "b": [1, 3],
        "a": [0, 4],
    }


SMALL = ("workload.requests=60", "check.require=[]", "serving.max_running=8")


def smoke(tmp_path, capsys, name, *settings, command=("run", "smoke"), seed=1):
    overrides = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
    out = str(tmp_path / name)
    main([*command, *overrides, "--seed", str(seed), "--launcher", "inline", "--out", out, "--json"])
    return json.loads(capsys.readouterr().out)


def parallel(tp_size, unpatched, patched):
    return (
        f"layout.tp_size={tp_size}",
        f"layout.dp_size={tp_size // 2}",
        "arms.mode=parallel",
        f"arms.unpatched.ranks={unpatched}",
        f"arms.patched.ranks={patched}",
    )


def test_a_run_in_parallel_decides_what_a_run_in_sequence_decides(tmp_path, capsys):
    """Attention TP groups of two; four ranks an arm, which have a layout of their own."""
    beside = smoke(tmp_path, capsys, "beside", *parallel(8, "0-3", "4-7"))
    after = smoke(tmp_path, capsys, "after", "layout.tp_size=4", "layout.dp_size=2")
    assert (beside["digest"], beside["verdict"]) == (after["digest"], "fail")
    for arm, first in (("unpatched", 0), ("patched", 4)):
        ours, theirs = beside["arms"][arm], after["arms"][arm]
        assert ours["totals"] == theirs["totals"]
        assert ours["totals"]["requests_started"] > 0
        assert [rank["rank"] for rank in ours["ranks"]] == [first, first + 1, first + 2, first + 3]
        for key in ("digest", "dp_rank", "attn_tp_rank", "requests_finished"):
            assert [rank[key] for rank in ours["ranks"]] == [rank[key] for rank in theirs["ranks"]]
    assert beside["layout"]["ranks"] == 8
    main(["report", str(tmp_path / "beside")])
    assert "of rank 2 (patched: 6)" in capsys.readouterr().out
    parted = beside["divergence"]
    assert (parted["rank"] + 4, parted["operation"]) == (
        parted["test_rank"],
        after["divergence"]["operation"],
    )


def test_arms_in_parallel_are_compared_place_by_place(tmp_path, capsys):
    compare = ("compare", "smoke", "--base", "unpatched", "--test", "patched")
    beside = smoke(tmp_path, capsys, "beside", *parallel(8, "4-7", "0,1"), command=compare)
    assert [(row["rank"], row["test_rank"]) for row in beside["compare"]["by_rank"]] == [
        (4, 0),
        (5, 1),
        (6, None),
        (7, None),
    ]
    assert beside["compare"]["by_rank"][2]["test"] is None
    assert beside["compare"] == compare_arms(beside, "unpatched", "patched")
    assert beside["divergence"] is None  # other shares of the requests


def test_one_arm_of_a_parallel_configuration_leaves_the_others_ranks_idle(tmp_path, capsys):
    alone = smoke(
        tmp_path, capsys, "alone", *parallel(8, "0-3", "6-7"), command=("run", "smoke", "--arm", "patched")
    )
    assert [rank["rank"] for rank in alone["arms"]["patched"]["ranks"]] == [6, 7]
    assert (alone["verdict"], alone["arms"]["patched"]["ranks_planned"]) == ("pass", 2)


def test_an_arm_is_not_compared_with_itself_on_the_same_ranks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in parallel(8, "0-3", "4-7") for word in ("--set", setting)]
    assert main(["compare", "smoke", "--base", "patched", "--test", "patched", *settings]) == 2
    told = capsys.readouterr().err
    assert told.startswith("kvstress: --test patched: is the base too")
    assert told.count("\n") == 1


@pytest.mark.parametrize("arm", ["unpatched", "patched"])
def test_a_report_of_an_unfinished_run_finds_the_arms_ranks(arm, tmp_path, capsys):
    smoke(tmp_path, capsys, "run", *parallel(8, "0-3", "4-7"))
    (tmp_path / "run" / "verdict.json").unlink()
    main(["report", str(tmp_path / "run"), "--json"])
    found = json.loads(capsys.readouterr().out)["arms"][arm]["ranks"]
    assert [rank["rank"] for rank in found] == ([0, 1, 2, 3] if arm == "unpatched" else [4, 5, 6, 7])
    assert [rank["dp_rank"] for rank in found] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("ranks", "wall_s"),
    [
        ({"first": (0, 1), "second": (2, 3)}, {"first-0": 5, "first-1": 6, "second-2": 7, "second-3": 8}),
        ({"first": (0, 1), "second": (0, 1)}, {"first-0": 5, "first-1": 6, "second-0": 1, "second-1": 2}),
    ],
)
def test_a_nightly_counts_a_ranks_time_from_the_start_of_its_arm(ranks, wall_s, tmp_path):
    """The files end at 105, 106, 107 and 108 s, of a run that began at 100 s: in parallel, and one after another."""
    (tmp_path / "ranks").mkdir()
    ends_s = iter((105, 106, 107, 108))
    for arm, numbers in ranks.items():
        for number in numbers:
            path = tmp_path / "ranks" / f"{arm}-{number}.jsonl"
            path.write_text("")
            end_s = next(ends_s)
            os.utime(path, (end_s, end_s))
    arms = {arm: {"ranks": [{"rank": number} for number in numbers]} for arm, numbers in ranks.items()}
    assert _rank_wall_s({"arms": arms}, tmp_path, 100) == wall_s
