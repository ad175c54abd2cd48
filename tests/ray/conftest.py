"""One cluster for all Ray tests, with a head and no other node at first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from own_cluster import OwnCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[OwnCluster]:
    """A cluster that nobody is told of: what does not ask for it must not join it."""
    owned = OwnCluster()
    try:
        owned.start_head()
        yield owned
    finally:
        left = owned.end()
    assert left == []
