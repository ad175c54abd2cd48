"""Each rank's device is the current one of its process, and of the thread that forms its group."""

import threading
import types

import msgspec
import pytest
import torch
import torch.distributed as dist
from launch_ranks import launch_config, rank_specs

from stress.evidence_file import open_evidence
from stress.launch.contract import LOOPBACK
from stress.launch.device import use_device
from stress.launch.inline import InlineLauncher
from stress.launch.local_rank import News, _run
from stress.launch.ray_actor import Orders, RankActor

ENTRY = "launch_ranks:echo_rank"


@pytest.fixture
def current(monkeypatch):
    """(device, whether by the main thread) of each device that was made the current one."""
    asked = []

    def set_device(device):
        asked.append((device, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(torch.cuda, "set_device", set_device)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # put back afterwards
    yield asked
    if dist.is_initialized():
        dist.destroy_process_group()


def specs(ranks, device):
    return [
        msgspec.structs.replace(spec, device=device.format(spec.rank))
        for spec in rank_specs(launch_config(ranks, rounds=2))
    ]


def local(spec):
    pipe = types.SimpleNamespace(send_bytes=lambda message: None)
    outcome, group = _run(spec, ENTRY, pipe, News(), 20.0)
    group.leave()
    return outcome


def on_ray(spec):
    actor = RankActor()
    port = actor.open_store(LOOPBACK, 20.0)
    orders = Orders(spec=spec, entry=ENTRY, gpu_id="", host=LOOPBACK, port=port, timeout_s=20.0)
    outcome = actor._run(orders, open_evidence, types.SimpleNamespace(lost=lambda peers: False))
    actor._group.leave()
    return outcome


@pytest.mark.parametrize("host", [local, on_ray])
def test_a_rank_in_a_process_of_its_own_works_on_its_device(host, current):
    (spec,) = specs(1, "cuda:3")
    outcome = host(spec)
    assert outcome.result is not None, outcome.lost
    assert current == [("cuda:3", True), ("cuda:3", False)]


def test_ranks_of_one_process_take_turns_on_theirs(current):
    launcher = InlineLauncher()
    launcher.start(specs(2, "cuda:{}"), ENTRY)
    assert len(launcher.poll(5.0)) == 2
    assert [device for device, _ in current] == ["cuda:0", "cuda:1"] * 3


def test_a_rank_on_the_cpu_asks_for_no_device(current):
    use_device("cpu")
    assert current == []
