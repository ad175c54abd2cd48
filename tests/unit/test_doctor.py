"""The doctor: what it says of machines that lack something. Its own machine is looked at once, whole."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stress.cli import main
from stress.command.doctor import lines_of
from stress.doctor import machine
from stress.doctor.check import Check, worst_state
from stress.doctor.child import Answer, ask
from stress.doctor.examine import document_of, python_check, what_runs
from stress.doctor.ray_checks import cluster_check, ray_check, visibility_check
from stress.doctor.target_checks import extra_check, pip_check
from stress.doctor.torch_checks import torch_checks

ROOT = Path(__file__).parents[2]
ON_A_CPU = {"torch": "2.9.0+cpu", "cuda": None, "rocm": None, "available": False, "devices": [], "gloo": ""}
TWO_GPUS = {
    **ON_A_CPU,
    "rocm": "7.0",
    "available": True,
    "devices": [{"name": "MI355X", "memory_gib": 288.0}] * 2,
}


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def doctor(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join(filter(None, [environment.pop("PYTHONPATH", ""), str(ROOT)]))
    return subprocess.run(
        [sys.executable, "-m", "stress", "doctor", *arguments],
        cwd=cwd,
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_this_machine_as_one_document(capsys, monkeypatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    code = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in document["checks"]}
    assert (document["schema"], code) == (1, 3 if document["state"] == "broken" else 0)
    assert checks["gloo"]["state"] == checks["loopback"]["state"] == "ok", checks["gloo"]
    assert checks["torch"]["values"]["torch"] == checks["python"]["values"]["versions"]["torch"]
    assert document["runs"]["inline"]
    assert document["runs"]["cuda"] == bool(checks["devices"]["values"]["devices"])
    assert all(check["cure"] and check["means"] for check in document["checks"] if check["state"] != "ok")


def test_imports_that_fail_or_crash_are_lines(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os, sys; sys.stderr.flush(); os.abort()")
    (tmp_path / "ray.py").write_text("raise ImportError('libfoo.so.1: no such file')")
    done = doctor("--json", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    document = json.loads(done.stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert "killed by signal 6" in checks["torch"]["found"]
    assert "libfoo.so.1: no such file" in checks["ray"]["found"]
    assert {"devices", "gloo"}.isdisjoint(checks)
    assert not any(document["runs"].values())
    assert not any(name.startswith(".kvstress-doctor") for name in os.listdir(tmp_path))


def test_a_child_that_hangs_or_babbles_is_a_reason() -> None:
    assert ask(["-c", "import time; time.sleep(60)"], timeout_s=0.5).why == "no answer within 0.5 s"
    assert ask(["-c", "print('hello')"]).why == "its answer can't be read"
    assert ask(["-c", "print('noise'); print('{\"a\": 1}')"]).document == {"a": 1}


def test_devices(tmp_path: Path) -> None:
    def devices(told: dict, **environment: str) -> Check:
        return by_name(torch_checks(Answer(document=told), environment, tmp_path))["devices"]

    assert (devices(ON_A_CPU).state, devices(TWO_GPUS).found) == ("ok", "2: MI355X (288 GiB)")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kfd").touch()
    wrong_build = devices(ON_A_CPU)
    assert (wrong_build.state, "build for ROCm" in wrong_build.cure) == ("warning", True)
    blind = {**ON_A_CPU, "rocm": "7.0"}
    assert "too old" in devices(blind).cure
    assert "HIP_VISIBLE_DEVICES=''" in devices(blind, HIP_VISIBLE_DEVICES="").cure


def test_a_group_that_can_not_exchange_leaves_inline() -> None:
    checks = torch_checks(Answer(document={**TWO_GPUS, "gloo": "connection refused"}), {})
    assert by_name(checks)["gloo"].state == "broken"
    rest = [
        ray_check(Answer(document={"ray": "2.60.0"})),
        pip_check(),
        extra_check("sglang", ()),
        extra_check("vllm", ("no_such_package",)),
        machine.cache_folder(),
    ]
    runs = what_runs([*checks, *rest])
    assert (runs["inline"], runs["local"], runs["ray"], runs["cuda"]) == (True, False, False, True)
    assert (runs["fetched_targets"], runs["fetched_vllm_targets"]) == (True, False)


def test_the_cluster_is_called_and_never_joined(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert cluster_check({}, none).values == {"address": None, "joins": False}
    assert cluster_check({"RAY_ADDRESS": "http://head:8265"}, none).state == "ok"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert cluster_check({"RAY_ADDRESS": address}, none).values["reachable"]
        current = tmp_path / "current"
        current.write_text(address)
        assert cluster_check({"RAY_ADDRESS": "auto"}, current).found == f"{address} answers"
    gone = cluster_check({"RAY_ADDRESS": address}, none)
    assert (gone.state, "unset RAY_ADDRESS" in gone.cure) == ("broken", True)
    assert cluster_check({"RAY_ADDRESS": "auto"}, none).state == "broken"
    assert "is no HOST:PORT" in cluster_check({"RAY_ADDRESS": "head:99999"}, none).found


def test_visibility_traps() -> None:
    assert visibility_check({}).state == "ok"
    slurm = visibility_check({"ROCR_VISIBLE_DEVICES": "4,5"})
    assert (slurm.state, "export HIP_VISIBLE_DEVICES=0,1 " in slurm.cure) == ("warning", True)
    assert visibility_check({"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "0"}).state == "ok"
    unset = visibility_check({"RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1"})
    assert unset.values["noset"] == ["RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES"]


@pytest.mark.parametrize(("limit", "state"), [(64, "broken"), (1024, "warning"), (65536, "ok"), (-1, "ok")])
def test_limits_of_open_files(limit: int, state: str) -> None:
    assert machine.open_files(limit).state == state


def test_a_containers_limits_count(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.cores(tmp_path).values["cores"] == 0.5
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 99 kB\nMemAvailable:   33554432 kB\n")
    assert machine.memory(tmp_path, meminfo).values["available_gib"] == 32
    (tmp_path / "memory.max").write_text(str(2 << 30))
    (tmp_path / "memory.current").write_text(str(1 << 29))
    limited = machine.memory(tmp_path, meminfo)
    assert (limited.state, limited.values["available_gib"]) == ("warning", 1.5)
    assert machine.memory(tmp_path / "none", tmp_path / "none").state == "warning"


def test_folders(tmp_path: Path, monkeypatch) -> None:
    assert machine.run_folder(tmp_path).state in ("ok", "warning")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs").write_text("a file")
    assert (machine.run_folder(tmp_path).state, "--out" in machine.run_folder(tmp_path).cure) == (
        "broken",
        True,
    )
    assert machine.shared_memory(tmp_path / "none").state == "warning"
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "runs" / "cache"))
    assert machine.cache_folder().state == "warning"


def test_what_targets_need() -> None:
    assert pip_check((sys.executable, "-c", "import no_such_pip")).state == "warning"
    assert "no_such_pip" in pip_check((sys.executable, "-c", "import no_such_pip")).found
    assert pip_check(("/no/such/python",)).state == "warning"
    assert extra_check("vllm", ("json", "no_such_package")).values["missing"] == ["no_such_package"]


def test_states_and_cures() -> None:
    assert python_check((3, 9, 1)).state == "broken"
    ok, bad = python_check(), machine.open_files(64)
    assert (worst_state([]), worst_state([ok]), worst_state([ok, bad])) == ("ok", "ok", "broken")
    with pytest.raises(ValueError, match="a cure"):
        Check(name="x", state="warning", found="y", means="z")


def test_lines_for_people_name_the_cure() -> None:
    checks = [python_check(), *torch_checks(Answer(why="no module named torch"), {})]
    checks += [machine.cache_folder(), pip_check(), extra_check("sglang"), extra_check("vllm")]
    text = "\n".join(lines_of(document_of(checks)))
    assert "broken   torch" in text
    assert "cure: install the build" in text
    assert "won't run here: --launcher inline, --launcher local, --launcher ray" in text
