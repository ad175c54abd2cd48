"""The group of the ranks' devices without a device: names, agreement, deadlines, and that NCCL may hang."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import types

import pytest
import torch
import torch.distributed as dist

from stress.launch import plan_group
from stress.launch.contract import LaunchError
from stress.launch.placement import Place, refuse_shared_devices
from stress.launch.plan_group import ENVIRONMENT, PlanGroup, device_name, form_plan_group, why_not_nccl
from stress.step_plan import Mode, StepPlan

PLAN = StepPlan(Mode.EXTEND, 1024, 0, 1 << 40).to_bytes()


class Event:
    """A CUDA event that comes `late` looks after it was recorded; -1: never."""

    late = 0

    def record(self) -> None:
        self.looks = self.late

    def query(self) -> bool:
        self.looks -= 1
        return self.looks == -1


@pytest.fixture
def alone(monkeypatch):
    """A default group of one rank, gloo in NCCL's place, host memory in the device's."""
    for name in (*ENVIRONMENT, "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "side stream")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    asked = types.SimpleNamespace(streams=[], backends=[])

    def on(stream):
        asked.streams.append(stream)
        return contextlib.nullcontext()

    new_group = dist.new_group

    def grouped(*, backend, timeout):
        asked.backends.append((backend, timeout.total_seconds()))
        return new_group(backend="gloo", timeout=timeout)

    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(dist, "new_group", grouped)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield asked
    dist.destroy_process_group()


def group_of(lost=lambda: False, timeout_s=30.0):
    return PlanGroup(1, "cpu", timeout_s=timeout_s, lost=lost)


def test_a_gather_is_one_collective_of_int64_on_a_stream_of_its_own(alone, monkeypatch):
    name = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    real, seen = getattr(dist, name), []

    def noted(out, mine, **options):
        seen.append((out.dtype, tuple(out.shape), tuple(mine.shape), options["async_op"]))
        return real(out, mine, **options)

    monkeypatch.setattr(dist, name, noted)
    group = group_of()
    assert group.gather(PLAN) == [PLAN]
    assert group.gather(bytes(32)) == [bytes(32)]
    assert seen == [(torch.int64, (4,), (4,), True)] * 2
    assert alone.streams == ["side stream"] * 2
    assert alone.backends == [("nccl", 30.0)]


def test_the_watchdog_that_ends_processes_is_off_before_the_group_is_made(alone):
    group_of()
    assert {name: os.environ[name] for name in ENVIRONMENT} == ENVIRONMENT
    assert ENVIRONMENT["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["NCCL_SOCKET_IFNAME"] == "=lo", "it listens where gloo does"


def test_plans_that_come_late_are_waited_for_and_those_that_never_come_to_the_deadline(alone, monkeypatch):
    monkeypatch.setattr(Event, "late", 40)
    assert group_of().gather(PLAN) == [PLAN]
    monkeypatch.setattr(Event, "late", -1)
    begun_s = time.monotonic()
    with pytest.raises(RuntimeError, match=r"no step plans of all ranks within 0\.3 s"):
        group_of(timeout_s=0.3).gather(PLAN)
    assert 0.3 <= time.monotonic() - begun_s < 5


def test_a_peer_that_is_known_to_be_lost_ends_the_wait(alone, monkeypatch):
    monkeypatch.setattr(Event, "late", -1)
    monkeypatch.setattr(plan_group, "ASK_AFTER_S", 0.05)
    begun_s = time.monotonic()
    with pytest.raises(RuntimeError, match="a peer was lost"):
        group_of(lost=lambda: True).gather(PLAN)
    assert time.monotonic() - begun_s < 5


def test_leaving_ends_in_time_also_where_nccl_does_not_let_go(alone, monkeypatch):
    assert group_of().leave()
    monkeypatch.setattr(plan_group, "LEAVE_TIMEOUT_S", 0.1)
    released = threading.Event()

    def hanging():
        released.wait()
        raise RuntimeError("aborted late")

    group = group_of()
    group._group = types.SimpleNamespace(abort=hanging, shutdown=None)
    begun_s = time.monotonic()
    assert not group.leave()
    assert time.monotonic() - begun_s < 5
    released.set()


def test_a_group_that_can_not_be_ended_is_not_taken_for_left(alone):
    def broken():
        raise RuntimeError("NCCL error")

    group = group_of()
    group._group = types.SimpleNamespace(abort=broken, shutdown=None)
    assert not group.leave()


def test_names_are_of_devices_and_not_of_what_a_process_sees(monkeypatch):
    assert device_name("cpu") == ""
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    known = types.SimpleNamespace(uuid="GPU-5f", pci_domain_id=0, pci_bus_id=7, pci_device_id=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known)
    assert device_name("cuda:0").split("/")[1:] == ["GPU-5f", "0", "7", "1"]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace())
    assert device_name("cuda:0").split("/")[1] == "5#0"
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert device_name("cuda:0") == ""


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a/1", "a/2"], ""),
        (["a/1", "b/1"], ""),
        (["a/1"], ""),
        (["a/1", "a/2", "a/1"], "ranks 0 and 2 share a device, which NCCL refuses"),
        (["a/1", ""], "rank 1 has no CUDA or ROCm device, or a torch without NCCL"),
        (["", ""], "ranks 0, 1 have no CUDA or ROCm device, or a torch without NCCL"),
    ],
)
def test_nccl_needs_a_device_for_each_rank(names, why):
    assert why_not_nccl(names) == why


def form(monkeypatch, backend, names, told=(b"", b""), trouble=""):
    """What rank 0 of two forms, and how often it exchanged. `told`: what the ranks say of their try."""
    left = []
    group = types.SimpleNamespace(leave=lambda: left.append(True))
    monkeypatch.setattr(plan_group, "device_name", lambda device: names[0])
    monkeypatch.setattr(plan_group, "_try", lambda *_: (None if trouble else group, trouble))
    answers = iter([[name.encode() for name in names], list(told)])
    said = []

    def gather(mine):
        said.append(mine)
        return next(answers)

    formed = form_plan_group("cuda:0", backend, gather, timeout_s=1, lost=lambda: False)
    return formed is group, len(said), len(left)


def test_all_ranks_agree_on_the_backend(monkeypatch):
    apart, one = ["a/1", "a/2"], ["a/1", "a/1"]
    assert form(monkeypatch, "auto", apart) == (True, 2, 0)
    assert form(monkeypatch, "nccl", apart) == (True, 2, 0)
    assert form(monkeypatch, "gloo", apart) == (False, 1, 0)
    assert form(monkeypatch, "auto", one) == (False, 1, 0)
    assert form(monkeypatch, "auto", apart, (b"", b"no network")) == (False, 2, 1), "a peer could not"
    assert form(monkeypatch, "auto", apart, (b"no network", b""), "no network") == (False, 2, 0)


def test_nccl_that_can_not_be_had_is_refused_with_the_reason(monkeypatch):
    with pytest.raises(
        LaunchError, match="nccl, but ranks 0 and 1 share a device, which NCCL refuses; use --set"
    ):
        form(monkeypatch, "nccl", ["a/1", "a/1"])
    with pytest.raises(LaunchError, match="nccl, but rank 1: no network; use --set"):
        form(monkeypatch, "nccl", ["a/1", "a/2"], (b"", b"no network"))


def test_a_try_has_half_of_the_time_that_the_whole_group_has(monkeypatch):
    """Else who waits for NCCL gives the group up before it has heard that a peer could not."""
    waits_s = []
    monkeypatch.setattr(
        plan_group, "_try", lambda ranks, device, wait_s, lost: (None, waits_s.append(wait_s) or "no")
    )
    monkeypatch.setattr(plan_group, "device_name", lambda device: "a/1")
    answers = iter([[b"a/1", b"a/2"], [b"", b"no"]])
    assert form_plan_group("cuda:0", "auto", lambda _: next(answers), timeout_s=30, lost=bool) is None
    assert waits_s == [15]


def test_a_try_that_fails_says_why_in_one_line(alone, monkeypatch):
    def broken(group):
        raise RuntimeError("NCCL error:\n  no network " + "x" * 1000)

    monkeypatch.setattr(PlanGroup, "_begin", broken)
    group, why = plan_group._try(1, "cpu", 1.0, lambda: False)
    assert group is None
    assert why.startswith("NCCL error: no network x")
    assert len(why) == plan_group.REASON_CHARACTERS


def test_a_cluster_whose_ranks_have_no_gpu_each_is_refused_nccl():
    def places(*gpus):
        return [Place(node_id="n", node_ip="10.0.0.1", gpu_id=gpu, pid=1) for gpu in gpus]

    for backend, gpus in (("nccl", ("0", "1")), ("auto", ("", "")), ("gloo", ("0", "0"))):
        refuse_shared_devices(backend, places(*gpus))
    for gpus, have in ((("", ""), "0 GPUs"), (("0", "0"), "1 GPUs")):
        with pytest.raises(LaunchError, match=f"2 ranks have {have} of their own; use --set"):
            refuse_shared_devices("nccl", places(*gpus))
