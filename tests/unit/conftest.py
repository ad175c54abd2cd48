"""Fixtures of the unit tests."""

import json
from pathlib import Path

import pytest
from fake_ranks import Ranks
from junit_rules import broken_document
from nightly_bench import MATRIX

import stress.coordinator
import stress.launch.contract
from stress.cli import main
from stress.record import RunDirectory


@pytest.fixture
def ranks(monkeypatch, tmp_path):
    """Call with what each arm's ranks show; works in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def fake(**arms):
        fakes = Ranks({name.replace("__", "~"): told for name, told in arms.items()})
        monkeypatch.setattr(stress.coordinator, "run_arms", fakes)
        monkeypatch.setattr(stress.launch.contract, "make_launcher", lambda name, config: fakes.launcher)
        return fakes

    return fake


@pytest.fixture
def night(ranks, monkeypatch):
    """Call with the folder, and what the ranks of a run show: `canary`, `runs`, or a run's name."""
    fakes = ranks(unpatched="fail", patched="pass")
    Path("mine.toml").write_text(MATRIX)

    def call(out, *options, canary="fail", runs="pass", **by_name):
        made = []

        def run_arms(config, arms, launcher, run_dir, *rest, **named):
            made.append(run_dir.path.name)
            told = (
                canary if arms == ["unpatched"] else by_name.get(run_dir.path.name.replace("-", "__"), runs)
            )
            fakes.arms = dict.fromkeys(arms, told)
            return fakes(config, arms, launcher, run_dir, *rest, **named)

        monkeypatch.setattr(stress.coordinator, "run_arms", run_arms)
        code = main(["nightly", "mine.toml", "--launcher", "inline", "--out", out, *options])
        verdict, report = Path(out, "verdict.json"), Path(out, "junit.xml")
        assert not report.exists() or broken_document(report.read_bytes()) == []
        return code, json.loads(verdict.read_text()) if verdict.exists() else None, made

    return call


@pytest.fixture
def run_dir(tmp_path):
    return RunDirectory.create(tmp_path / "run", "test")
