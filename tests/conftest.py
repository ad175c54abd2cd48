"""What all tests share: one thread a process, small hypothesis profiles, skips that name what is missing."""

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


def pytest_collection_modifyitems(items):
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
