"""Named faults of the client of a pool of pages: fault -> what it overrides of the engine.

One override a file. The pool itself is the release's own, as it is.
"""

from __future__ import annotations

from stress.engine.lmcache.faults.f25_given_up_twice import GivenUpTwice

CLIENT_FAULTS: dict[str, type] = {"F25": GivenUpTwice}
