"""Tells the keys by which a target finds what a request has published, beside what that really is.

The identities are the plan's page keys of the request: namespace and whole prefix. A page of a request is told once, at
the insert that brought it in; an external store takes the same keys from there.
"""

from __future__ import annotations

from stress.check.event import EventKind
from stress.engine.contract import Engine, RequestSpec
from stress.probe.journal import Journal


class KeyWatch:
    """`journal` is told under its present cause, for pool `pool`."""

    def __init__(self, engine: Engine, journal: Journal, pool: str) -> None:
        self._engine = engine
        self._journal = journal
        self._pool = pool
        self._specs: dict[int, RequestSpec] = {}
        self._told: dict[int, int] = {}  # pages of each request

    def open(self, spec: RequestSpec) -> None:
        """A request is known from now on."""
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        """A request is gone."""
        del self._specs[rid]
        self._told.pop(rid, None)

    def published(self, rid: int) -> None:
        """A checkpoint or a finish of the request is over."""
        told = self._told.get(rid, 0)
        keys = self._engine.published_keys(told)
        if len(keys):
            self._told[rid] = told + len(keys)
            identities = self._specs[rid].keys[told : told + len(keys)]
            self._journal.tell(EventKind.KEYS, self._pool, keys, identities, "the cache")
