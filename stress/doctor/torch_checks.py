"""What torch answered, judged: can it be imported, which devices does it see, can ranks exchange."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stress.doctor.check import Check
from stress.doctor.child import Answer, ask

# What a GPU's driver leaves in /dev, by the build of torch that it needs.
DRIVERS = {"CUDA": "dev/nvidiactl", "ROCm": "dev/kfd"}
VISIBILITY = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def ask_torch() -> Answer:
    """Imports torch in a process of its own; seconds."""
    return ask(["-m", "stress.doctor.torch_answers"])


def torch_checks(answer: Answer, environment: Mapping[str, str], root: Path = Path("/")) -> list[Check]:
    """The checks `torch`, `devices` and `gloo`; the first alone where torch can't be imported."""
    told = answer.document
    if told is None:
        broken = Check(
            name="torch",
            state="broken",
            found=answer.why,
            means="no rank runs: allocators keep their pages in tensors",
            cure="install the build for your device: pip install torch, see pytorch.org/get-started",
        )
        return [broken]
    build = f"CUDA {told['cuda']}" if told["cuda"] else f"ROCm {told['rocm']}" if told["rocm"] else "the CPU"
    values = {name: told[name] for name in ("torch", "cuda", "rocm")}
    built = Check(name="torch", state="ok", found=f"{told['torch']}, built for {build}", values=values)
    return [built, _devices(told, environment, root), _gloo(told["gloo"])]


def _devices(told: dict, environment: Mapping[str, str], root: Path) -> Check:
    devices = told["devices"]
    if devices:
        names = [f"{device['name']} ({device['memory_gib']:g} GiB)" for device in devices]
        listed = ", ".join(dict.fromkeys(names))
        return Check(
            name="devices",
            state="ok",
            found=f"{len(devices)}: {listed}",
            means="--set layout.device=cuda puts a rank on each (CUDA and ROCm alike)",
            values={"devices": devices},
        )
    drivers = [name for name, path in DRIVERS.items() if (root / path).exists()]
    hidden = [f"{name}={environment[name]!r}" for name in VISIBILITY if name in environment]
    if not drivers:
        return Check(
            name="devices",
            state="ok",
            found="none, and no driver of one",
            means="ranks run on the CPU, where every rule is checked; layout.device = cuda is refused",
            values={"devices": []},
        )
    built_for = "CUDA" if told["cuda"] else "ROCm" if told["rocm"] else "the CPU"
    if built_for not in drivers:
        cure = f"install torch's build for {' or '.join(drivers)}; this one is for {built_for}"
    elif hidden:
        cure = f"look at {', '.join(hidden)}, which may hide them all"
    else:
        cure = (
            "the driver may be too old for this build, or out of reach for this user (groups video, render)"
        )
    return Check(
        name="devices",
        state="warning",
        found=f"torch sees none, but a {' and a '.join(drivers)} driver is here",
        means="ranks run on the CPU; layout.device = cuda is refused",
        cure=cure,
        values={"devices": []},
    )


def _gloo(why: str) -> Check:
    if not why:
        return Check(name="gloo", state="ok", found="a group was formed on loopback and exchanged")
    return Check(
        name="gloo",
        state="broken",
        found=why,
        means="ranks in processes can't exchange; --launcher inline runs",
        cure="let loopback through (firewall, sandbox, GLOO_SOCKET_IFNAME), or use a torch that has gloo",
    )
