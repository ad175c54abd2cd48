"""When a named fault was reached, and when it first acted.

A fault is a class that overrides a little of correct code. Where its trigger is present, and only there, it asks
`acts(id)`: that records the operation and says whether to do the wrong thing. A dry fault is asked and told no: so a
clean twin shows that it came to the trigger of the very fault that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class FaultLog:
    """Faults of one rank. `operation` is the operation at hand, set by whoever numbers them.

    reached: fault -> the first operation at which its trigger was present.
    """

    def __init__(self, acting: Iterable[str] = (), dry: Iterable[str] = ()) -> None:
        self.acting = frozenset(acting)
        self.known = self.acting | frozenset(dry)
        self.operation = 0
        self.reached: dict[str, int] = {}

    def acts(self, fault: str) -> bool:
        """The trigger of `fault` is present: whether it acts on it."""
        if fault in self.known:
            self.reached.setdefault(fault, self.operation)
        return fault in self.acting


NO_FAULTS = FaultLog()


def with_faults(correct: type, overrides: Mapping[str, type], log: FaultLog) -> type:
    """`correct` with the overrides of the faults that `log` knows, in their order; `correct` itself without any.

    An override's methods find the log as `self.faults`, also while the object is constructed.
    """
    chosen = tuple(override for fault, override in overrides.items() if fault in log.known)
    if not chosen:
        return correct
    return type(f"Faulty{correct.__name__}", (*chosen, correct), {"faults": log})
