"""What all tests share: one thread a process, small hypothesis profiles, skips that name what is missing, and how
several workers share the tests out."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fast",
    max_examples=40,
    derandomize=True,  # a control must fire every time, or it is no control; `thorough` looks further
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", parent=settings.get_profile("fast"), max_examples=400, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


# They wait for processes of their own with limits of time, and Ray's share a cluster: one worker runs them all.
APART = ("tests/multi/", "tests/ray/")


def pytest_collection_modifyitems(items):
    longest_first(items)
    skip_without_device(items)


def longest_first(items):
    """Those apart, files with a test marked `slow`, all others: no worker is left with a long file at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (not item.nodeid.startswith(APART), item.path not in slow))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker takes whole files, whose tests share runs, in the order of the collection."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "apart" if nodeid.startswith(APART) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)


def skip_without_device(items):
    """A test marked `gpu` needs a device. Torch is imported only where such a test is chosen."""
    chosen = [item for item in items if item.get_closest_marker("gpu")]
    if not chosen:
        return
    import torch

    if not torch.cuda.is_available():
        for item in chosen:
            item.add_marker(
                pytest.mark.skip(reason="no CUDA or ROCm device here: torch.cuda.is_available() is false")
            )
