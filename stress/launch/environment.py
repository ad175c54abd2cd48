"""Environment variables of the processes that a launcher starts: set while they start, put back afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

# One thread a rank: the ranks share the machine's cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def exported(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables, and puts the old ones back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
