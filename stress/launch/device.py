"""Which torch device a rank uses: the one place that turns `auto | cpu | cuda` into a name, and makes it current.

ROCm's torch is `torch.cuda` too, so one name serves both. Called in the rank's own process, never before a
fork: the first question about a device initialises the driver.
"""

from __future__ import annotations

from stress.launch.contract import LaunchError


def torch_device(requested: str, rank: int) -> str:
    """The name "cpu", or "cuda:N" with N = rank modulo the devices that this process sees.

    Raises LaunchError when "cuda" is asked for and no device is there.
    """
    if requested not in ("auto", "cpu", "cuda"):
        return requested  # a launcher that assigns devices has chosen one already
    if requested == "cpu":
        return "cpu"
    import torch

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if devices:
        return f"cuda:{rank % devices}"
    if requested == "cuda":
        raise LaunchError(
            "layout.device is cuda, but torch sees no CUDA or ROCm device; use --set layout.device=cpu"
        )
    return "cpu"


def use_device(device: str) -> None:
    """Makes it the current device of this thread, as a server does; nothing for "cpu".

    Pinned memory and a target's Triton kernels go to the current device, wherever their tensors lie. Raises
    RuntimeError for one that is not there.
    """
    if device.startswith("cuda"):
        import torch

        torch.cuda.set_device(device)


def assigned_device(gpu_id: str, visible: str | None, devices: int) -> str:
    """The device of a rank to which the cluster lent the GPU `gpu_id`.

    `visible` is HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES of its process, `devices` how many torch sees. A
    cluster that hides the other GPUs leaves one, numbered 0; one that is told not to (Ray's
    RAY_EXPERIMENTAL_NOSET_*_VISIBLE_DEVICES) leaves all, and the position in the visible list counts.
    """
    if devices == 1:
        return "cuda:0"
    shown = [entry.strip() for entry in visible.split(",")] if visible else []
    return f"cuda:{shown.index(gpu_id) if gpu_id in shown else int(gpu_id)}"
