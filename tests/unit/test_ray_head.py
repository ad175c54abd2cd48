"""What is told of actors and heads that are gone: a cluster without a head is called no more, and exit codes stay."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from stress.launch import ray as ray_launcher
from stress.launch import ray_head
from stress.launch.ray_head import HeadWatch, end_workers


@pytest.fixture
def head() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr(ray_head.time, "monotonic", lambda: now_s[0])
    return now_s


def test_a_head_is_gone_when_it_has_not_answered_for_a_while(head: socket.socket, clock: list[float]) -> None:
    watch = HeadWatch(f"127.0.0.1:{head.getsockname()[1]}")
    assert watch.answers()
    clock[0] += 1000
    assert not watch.is_gone()  # it answers still
    head.close()
    assert not watch.answers()
    clock[0] += ray_head.GONE_S - 1
    assert not watch.is_gone()  # it may be on its way back
    clock[0] += ray_head.LOOK_S
    assert watch.is_gone()


def test_it_is_looked_for_now_and_then_only(
    head: socket.socket, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = HeadWatch(f"127.0.0.1:{head.getsockname()[1]}")
    connect, looks_s = socket.create_connection, []

    def noted(*where: object) -> socket.socket:
        looks_s.append(clock[0])
        return connect(*where)

    monkeypatch.setattr(ray_head.socket, "create_connection", noted)
    for _ in range(8):
        clock[0] += ray_head.LOOK_S / 2
        assert not watch.is_gone()
    assert looks_s == [100 + ray_head.LOOK_S * look for look in (1, 2, 3, 4)]


def test_only_workers_of_ray_are_ended() -> None:
    sleeper = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    with (
        subprocess.Popen(sleeper, stdout=subprocess.PIPE) as other,
        subprocess.Popen(
            ["ray::RankActor", *sleeper[1:]], executable=sys.executable, stdout=subprocess.PIPE
        ) as worker,
    ):
        try:
            assert other.stdout.readline() and worker.stdout.readline()
            end_workers([other.pid, worker.pid, 2**22 + 1])
            assert worker.wait(10) < 0
            assert other.poll() is None
        finally:
            other.kill()
            worker.kill()


@pytest.mark.parametrize(("broken", "seen"), [(False, "shut down"), (True, "")])
def test_a_process_that_cannot_be_shut_down_still_has_its_exit_code(broken: bool, seen: str) -> None:
    code = (
        "import atexit, sys; from stress.launch.ending import leave, never_shut_down; "
        f"atexit.register(print, 'shut down'); {'never_shut_down(repr(1)); ' if broken else ''}sys.exit(leave(3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (3, seen)


def test_ranks_of_a_dead_node_share_one_reason() -> None:
    told = {
        ray_launcher._one_line(
            RuntimeError(
                f"The actor {actor} is unavailable: The actor is temporarily unavailable: RpcError: RPC error: Socket "
                "closed rpc_code: 14. The task may or may not have been executed on the actor."
            )
        )
        for actor in ("02afae6f2207c398", "9ba431fbbf6f6bc3")
    }
    assert told == {"RPC error: Socket closed"}
    died = "The actor died unexpectedly before finishing this task. Some common causes include: (1) the OOM killer"
    assert (
        ray_launcher._one_line(RuntimeError(died))
        == "The actor died unexpectedly before finishing this task."
    )
