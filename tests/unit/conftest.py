"""Fixtures of the unit tests."""

import pytest
from fake_ranks import Ranks

import stress.coordinator
import stress.launch.contract


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
