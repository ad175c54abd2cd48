"""Ranks that the machine can't run: one line that ends the start, and no process is left."""

from __future__ import annotations

import errno
import multiprocessing

import msgspec
import pytest
from launch_ranks import launch_config, rank_specs
from processes import still_alive

from stress.launch import local_rank
from stress.launch.contract import LaunchError
from stress.launch.local import LocalLauncher

pytestmark = pytest.mark.multi

ENTRY = "launch_ranks:echo_rank"


def test_a_device_that_is_not_there_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    specs = [msgspec.structs.replace(spec, device="cuda") for spec in rank_specs(launch_config(2, rounds=1))]
    launcher = LocalLauncher()
    try:
        with pytest.raises(LaunchError, match=r"rank \d: layout\.device is cuda.*--set layout\.device=cpu"):
            launcher.start(specs, ENTRY)
            for _ in range(60):
                launcher.poll(1.0)
    finally:
        launcher.close()


def test_a_rank_that_nobody_listens_to_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A peer was refused first, so the coordinator has let go of all: this one's refusal interests nobody."""
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    spec = msgspec.structs.replace(rank_specs(launch_config(2, rounds=1))[1], device="cuda")
    context = multiprocessing.get_context("fork")
    rank = context.Process(target=_unheard_rank, args=(theirs, msgspec.json.encode(spec)))
    rank.start()
    rank.join(60)
    assert (rank.exitcode, capfd.readouterr().err) == (0, "")


def _unheard_rank(pipe, spec_json: bytes) -> None:
    local_rank._listen = lambda pipe, news: None  # it has not come to hear of the end of the pipe yet
    local_rank.torch_device = _no_device
    local_rank.rank_process(pipe, spec_json, ENTRY, 5.0)


def _no_device(requested: str, rank: int) -> str:
    raise LaunchError("layout.device is cuda, but there is none")


def test_a_machine_without_room_says_how_many_ranks_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    start_rank, pids = LocalLauncher._start_rank, []

    def limited(self, context, spec, entry):
        if len(pids) == 2:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        rank = start_rank(self, context, spec, entry)
        pids.append(rank.process.pid)
        return rank

    monkeypatch.setattr(LocalLauncher, "_start_rank", limited)
    with pytest.raises(
        LaunchError, match=r"2 of 3 ranks were started, then no more \(.*unavailable\); lower"
    ):
        LocalLauncher().start(rank_specs(launch_config(3, rounds=1)), ENTRY)
    assert still_alive(pids, 0) == []
