"""A cluster that others own, of two nodes, one of which sees no run directory: jobs in it, and the death of a node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from own_cluster import ROOT, OwnCluster
from processes import is_alive, still_alive

from stress.record import RankTail, rank_path

pytestmark = pytest.mark.ray

LIMIT_S = 120
FEW = ["--set", "workload.requests=60", "--set", "check.require=[]"]
RUN = ["python", "-m", "stress", "run", "smoke", "--launcher", "ray"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture
def blind_node(cluster: OwnCluster, out: Path) -> OwnCluster:
    """The cluster with one more node, for which the folder `out` is another, empty one."""
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    hide = ["sh", "-c", f'mount -t tmpfs none "{out}" && exec "$@"', "sh"]
    try:
        subprocess.run([*unshare, *hide, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no mount namespace can be made here: {error}")
    cluster.start_node([*unshare, *hide])
    return cluster


def verdict_of(run_dir: Path) -> dict:
    return json.loads((run_dir / "verdict.json").read_text())


def ranks_of(run_dir: Path, arm: str = "patched") -> list[dict]:
    return verdict_of(run_dir)["arms"][arm]["ranks"]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        assert process is None or process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.1)


def submit(cluster: OwnCluster, job: str, out: Path, *options: str) -> subprocess.Popen:
    """The client of a new job; it follows the job to its end."""
    client = cluster.client("job", "submit", f"--submission-id={job}", "--working-dir", ".")
    return started([*client, "--", *RUN, "--out", str(out), *options], cluster.environment)


def started(command: list[str], environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def rank_pids(run_dir: Path, arm: str, ranks: int) -> list[int]:
    return [RankTail(rank_path(run_dir, arm, rank)).read().started.pid for rank in range(ranks)]


def test_two_jobs_at_once_end_as_their_runs_do(cluster: OwnCluster, out: Path) -> None:
    """The client folds every failure to 1; each job's verdict is in its own folder."""
    clients = {arm: submit(cluster, arm, out / arm, "--arm", arm, *FEW) for arm in ("patched", "unpatched")}
    said = {arm: client.communicate(timeout=LIMIT_S)[0].decode() for arm, client in clients.items()}
    assert {arm: client.returncode for arm, client in clients.items()} == {"patched": 0, "unpatched": 1}, said
    assert verdict_of(out / "patched")["verdict"] == "pass"
    assert verdict_of(out / "unpatched")["verdict"] == "fail"
    for arm in clients:
        assert still_alive(rank_pids(out / arm, arm, 2), 10) == []


def test_a_stopped_job_leaves_what_it_gathered_and_no_rank(cluster: OwnCluster, out: Path) -> None:
    run_dir = out / "stopped"
    many = ["--set", "workload.requests=20000", "--set", "workload.duration_s=1e6"]
    client = submit(cluster, "stopped", run_dir, "--arm", "patched", *many)
    try:
        wait_for(lambda: RankTail(rank_path(run_dir, "patched", 1)).read().heartbeats > 20, client)
        pids = rank_pids(run_dir, "patched", 2)
        stop = cluster.client("job", "stop", "stopped")
        subprocess.run(stop, check=True, env=cluster.environment, capture_output=True, timeout=LIMIT_S)
        said = client.communicate(timeout=LIMIT_S)[0].decode()
    finally:
        client.kill()
    assert client.returncode == 0, said  # a stopped job is none that failed, for Ray
    assert still_alive(pids, 10) == []
    assert verdict_of(run_dir)["verdict"] == "unknown"
    assert [rank["status"] for rank in ranks_of(run_dir)] == ["stopped", "stopped"]
    assert min(rank["requests_finished"] for rank in ranks_of(run_dir)) > 0


def test_a_dead_node_costs_its_ranks_and_not_what_they_had_said(blind_node: OwnCluster, out: Path) -> None:
    """The ranks of the second node can't see `out`: their lines come by the first."""
    cluster, run_dir = blind_node, out / "node"
    eight = [f"layout.{size}=8" for size in ("tp_size", "dp_size")]
    paced = [*eight, "layout.placement=spread", "workload.requests=800", "layout.exchange_ms=250"]
    sets = [word for each in [*paced, "check.require=[]"] for word in ("--set", each)]
    joining = {**cluster.environment, "RAY_ADDRESS": cluster.address}
    with started([*RUN, "--arm", "patched", "--out", str(run_dir), *sets], joining) as run:
        tails = [RankTail(rank_path(run_dir, "patched", rank)) for rank in range(8)]
        wait_for(lambda: min(tail.read().heartbeats for tail in tails) >= 10, run)
        pids = rank_pids(run_dir, "patched", 8)
        far = [rank for rank, pid in enumerate(pids) if os.getsid(pid) == cluster.sessions[1]]
        killed_s = time.monotonic()
        for pid in (cluster.raylet(1), *(pids[rank] for rank in far)):  # a machine ends as a whole
            with contextlib.suppress(ProcessLookupError):  # by its own, once it has no raylet
                os.kill(pid, signal.SIGKILL)
        said = run.communicate(timeout=LIMIT_S)[0].decode()
        took_s = time.monotonic() - killed_s
    assert run.returncode == 3, said
    assert took_s < 30
    assert verdict_of(run_dir)["verdict"] == "unknown"
    status = {rank["rank"]: rank["status"] for rank in ranks_of(run_dir)}
    assert status == {rank: "lost" if rank in far else "finished" for rank in range(8)}
    assert len(far) == 4
    tails = [RankTail(rank_path(run_dir, "patched", rank)) for rank in range(8)]  # what lies there now
    assert min(tail.read().heartbeats for tail in tails) >= 10
    assert [tail.unreadable for tail in tails] == [0] * 8
    assert not any(is_alive(pid) for pid in pids)
