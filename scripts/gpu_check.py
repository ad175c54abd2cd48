"""One short script for whoever has a GPU: what kvstress can show on one device, CUDA or ROCm.

    python scripts/gpu_check.py          (make gpu-check)

Prints a line a check. Exit 0: all hold. 1: one does not. 3: there is no device. It starts no Ray, opens no port beyond
loopback, takes a few hundred MiB of the device and about a minute. tests/gpu holds the same checks for pytest.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import Cause, EdgeShape, PoolShape
from stress.check.shadow import Ledger
from stress.config import load_config
from stress.coordinator import run_arms
from stress.engine.reference.engine import ReferenceEngine
from stress.launch.contract import make_launcher
from stress.probe import Watch
from stress.probe.capture import DeviceReader
from stress.record import RunDirectory

TIMEOUT_S = 300
GATHERS = 50
ROOT = Path(__file__).resolve().parents[1]
RANK = str(Path(__file__).with_name("gpu_rank.py"))
PAGE = 16
SYNC_WARNING = "synchronizing CUDA operation"


class CheckFailed(Exception):
    """What did not hold, one line."""


def require(holds: bool, why: str) -> None:
    """Raises CheckFailed with `why` unless it holds."""
    if not holds:
        raise CheckFailed(why)


def gloo_pair(device: str) -> str:
    """Two ranks that share a device find that they do, and exchange their step plans over gloo."""
    return _group("auto", [device] * 2, "gloo")


def nccl_each(device: str) -> str:
    """A rank on each device, two at most, and their step plans over nccl, which is RCCL on ROCm; then they leave."""
    there = [f"cuda:{index}" for index in range(min(2, torch.cuda.device_count()))]
    return _group("nccl", there or [device], "nccl")


def smoke_arms(device: str) -> str:
    """Both arms of smoke, two local ranks whose pools lie on the device: reproduced and fixed."""
    document = _compare_smoke(device)
    outcome = document["compare"]["outcome"]
    require(outcome == "reproduced_and_fixed", f"{outcome}: {document['reasons']}")
    used = {rank["device"].partition(":")[0] for arm in document["arms"].values() for rank in arm["ranks"]}
    require(used == {device.partition(":")[0]}, f"the ranks ran on {sorted(used)}")
    totals = document["arms"]["patched"]["totals"]
    return f"{outcome}, {totals['requests_finished']} requests finished on the patched arm, ranks on {', '.join(used)}"


def same_as_on_a_cpu(device: str) -> str:
    """The digest, and each rank's first finding, of that run are those of the same run on the CPU."""
    there, here = _compare_smoke(device), _compare_smoke("cpu")
    require(there["digest"] == here["digest"], f"digest {there['digest']}, on the CPU {here['digest']}")
    found = [_first_findings(document) for document in (there, here)]
    require(found[0] == found[1], f"first findings {found[0]}, on the CPU {found[1]}")
    return f"digest {there['digest']}, {len(found[0])} first findings alike"


def probe_never_waits(device: str) -> str:
    """Torch refuses whatever waits for the device while the probe watches lends, segment frees and a flush."""
    allocator = HybridSWAAllocator(32 * PAGE, 16 * PAGE, PAGE, device, release="unpatched")
    pools = (PoolShape("full", 32, PAGE, 0), PoolShape("swa", 16, PAGE, 0))
    edges = (EdgeShape("full", "swa"),)
    ledger = Ledger(pools, edges, 1)
    watch = Watch(allocator, pools, edges, ledger, DeviceReader())
    zeros = torch.zeros(1, dtype=torch.int64, device=device)
    last = torch.full((1,), -1, dtype=torch.int64, device=device)
    tokens = 6 * PAGE + 1
    lengths, on_device = torch.tensor([tokens]), torch.tensor([tokens], device=device)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        watch.begin(Cause(1, "extend", 1, ""), 10)
        allocator.alloc_extend(zeros, torch.tensor([0]), on_device, lengths, last, tokens)
        watch.begin(Cause(2, "admit", 4, ""), 20)
        loaded = allocator.full_attn_allocator.alloc(4 * PAGE)
        watch.begin(Cause(3, "checkpoint", 4, ""), 30)
        allocator.free_group_begin()
        allocator.free_swa_segment(loaded, start_pos=0)
        watch.begin(Cause(4, "results_end", -1, ""), 40)
        allocator.free_group_end()
        control = _refused(lambda: zeros.item())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    require(control, "control: torch did not refuse item() either, so this shows nothing")
    torch.cuda.synchronize()
    watch.land()
    ledger.settle(4, 40)
    require(not ledger.crashed, f"the ledger crashed: {ledger.crashed}")
    require(ledger.findings == {"I1": 4}, f"found {ledger.findings}, not the four returns of page 0")
    return "no wait; the four returns of page 0 were found when the copies had landed"


def probe_adds_no_sync(device: str) -> str:
    """A rank with the checks waits for the device as often as without, but for the engine's own step ends."""
    without, ends_without = _count_syncs(device, level=0)
    with_probe, ends_with = _count_syncs(device, level=2)
    told = f"{without} waits without the probe, {with_probe} with it; {ends_without} and {ends_with} are step ends"
    require(without - ends_without > 0, f"control: the patched arm's filter was not counted either: {told}")
    added = (with_probe - ends_with) - (without - ends_without)
    require(added == 0, f"the probe adds {added}: {told}")
    return told


CHECKS: dict[str, Callable[[str], str]] = {
    "gloo, 2 ranks on one device": gloo_pair,
    "nccl or rccl, a rank a device": nccl_each,
    "smoke, both arms": smoke_arms,
    "the same as on a CPU": same_as_on_a_cpu,
    "the probe never waits": probe_never_waits,
    "the probe adds no sync": probe_adds_no_sync,
}


def _refused(wait: Callable[[], object]) -> bool:
    try:
        wait()
    except RuntimeError as error:
        return SYNC_WARNING in str(error)
    return False


def _first_findings(document: dict) -> list[tuple]:
    ranks = [rank for arm in document["arms"].values() for rank in arm["ranks"]]
    found = [rank["first_finding"] for rank in ranks if rank["first_finding"]]
    return [(one["rule"], one["pool"], one["operation"], one["page"], one["history"]) for one in found]


@functools.cache
def _compare_smoke(device: str) -> dict:
    """The verdict of both arms of smoke. The ranks are processes, so the device is one that each can open."""
    kind = device.partition(":")[0]
    with tempfile.TemporaryDirectory() as folder:
        arms = ["--base", "unpatched", "--test", "patched", "--launcher", "local", "--json"]
        sets = ["--set", f"layout.device={kind}", "--set", "check.require=[]"]
        command = [sys.executable, "-m", "stress", "compare", "smoke", *arms, *sets, "--out", f"{folder}/run"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    require(bool(done.stdout), f"compare ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def _count_syncs(device: str, level: int) -> tuple[int, int]:
    """(waits for the device, of these the engine's own step ends) of one rank of smoke's patched arm."""
    kind = device.partition(":")[0]
    shape = ("layout.tp_size=1", "layout.dp_size=1", "workload.requests=60", f"layout.device={kind}")
    config = load_config("smoke", [*shape, f"check.level={level}", "check.require=[]"])
    step_ends, synchronize = 0, ReferenceEngine.synchronize

    def counted(engine: ReferenceEngine) -> None:
        nonlocal step_ends
        before = len(seen)
        synchronize(engine)
        step_ends += sum(SYNC_WARNING in str(one.message) for one in seen[before:])

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ReferenceEngine.synchronize = counted
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run_dir = RunDirectory.create(Path(folder) / "run", "smoke")
            launcher = make_launcher("inline", config)
            results = run_arms(config, ["patched"], launcher, run_dir, lambda _: None)["patched"]
        finally:
            torch.cuda.set_sync_debug_mode("default")
            ReferenceEngine.synchronize = synchronize
        waits = sum(SYNC_WARNING in str(one.message) for one in seen)
    require(results[0].status == "finished", f"the rank was {results[0].status}: {results[0].message[-300:]}")
    return waits, step_ends


def _group(backend: str, devices: list[str], over: str) -> str:
    """Ranks in processes of their own, each on its device, gather plans `over`; any may crash or hang."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, RANK, backend, over, f"{folder}/store", ",".join(devices), str(GATHERS)]
        begin = functools.partial(subprocess.Popen, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        children = [begin([*command, str(rank)]) for rank in range(len(devices))]
        try:
            errors = [child.communicate(timeout=TIMEOUT_S)[1].strip() for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
    for child, error in zip(children, errors, strict=True):
        require(not child.returncode, f"a rank ended with {child.returncode}: {error.splitlines()[-1:]}")
    return f"{GATHERS} step plans of {len(devices)} rank{'s' * (len(devices) > 1)} on {', '.join(devices)}"


def main(device: str = "cuda:0") -> int:
    if not torch.cuda.is_available():
        print("gpu-check: torch sees no CUDA or ROCm device here; `kvstress doctor` says why")
        return 3
    build = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {build}", flush=True)
    failed = 0
    for name, check in CHECKS.items():
        begun_s = time.monotonic()
        try:
            state, detail = "ok", check(device)
        except Exception as error:  # whatever it is, the other checks are still worth their line
            failed += 1
            state, detail = "FAILED", " ".join(f"{type(error).__name__}: {error}".split())[:500]
        print(f"{state:<6}  {name}: {detail} ({time.monotonic() - begun_s:.1f} s)", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
