"""Objects that stand where a module of a tree, or of a package it needs, is not imported.

A module body may do to one what definitions do: take attributes, subclass, decorate, annotate, call to build
a constant. Nothing may decide anything by one: a test, a comparison, an iteration, a number, a string raise
StandInUsed at any time; once sealed, everything else does too, but asking whether an object is an instance.
`is` can't be watched. `isinstance` answers truly: a class that was never loaded has the instances of those
classes that were derived from its stand-in, and no others.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

_SEALED = False
_DECIDES = [
    "bool",
    "len",
    "iter",
    "next",
    "reversed",
    "contains",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "int",
    "float",
    "complex",
    "index",
    "trunc",
    "floor",
    "ceil",
    "round",
    "neg",
    "pos",
    "abs",
    "invert",
    "add",
    "radd",
    "iadd",
    "sub",
    "rsub",
    "isub",
    "mul",
    "rmul",
    "imul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "divmod",
    "rdivmod",
    "pow",
    "rpow",
    "matmul",
    "rmatmul",
    "lshift",
    "rlshift",
    "rshift",
    "rrshift",
    "and",
    "rand",
    "xor",
    "rxor",
    "enter",
    "exit",
    "aenter",
    "aexit",
    "await",
    "aiter",
    "anext",
    "str",
    "format",
    "bytes",
    "fspath",
    "setitem",
    "delitem",
    "delattr",
]


class StandInUsed(RuntimeError):
    """Code of the tree asked something of a module that was not imported: an answer would be invented."""


def seal() -> None:
    """From here on a stand-in can only be passed along: no module body is left to be executed."""
    global _SEALED
    _SEALED = True


def unseal() -> None:
    """For the time of one more module body."""
    global _SEALED
    _SEALED = False


def sealed() -> bool:
    return _SEALED


class StandIn:
    """One name of a module that is not imported. `cure` ends the message of a refusal: which list to extend."""

    def __init__(self, name: str, cure: str = "") -> None:
        object.__setattr__(self, "_stand_in_name", name)
        object.__setattr__(self, "_stand_in_cure", cure)
        object.__setattr__(self, "_stand_in_base", None)

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("__name__", "__qualname__"):
            return self._stand_in_name.rsplit(".", 1)[-1]
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self._refuse(f"asked for .{attribute}", always=False)
        part = StandIn(f"{self._stand_in_name}.{attribute}", self._stand_in_cure)
        object.__setattr__(self, attribute, part)
        return part

    def __setattr__(self, attribute: str, value: Any) -> None:
        self._refuse(f"given .{attribute}", always=False)
        object.__setattr__(self, attribute, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a decorator it gives back what it decorates."""
        self._refuse("called", always=False)
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type):
            return args[0]
        return StandIn(f"{self._stand_in_name}()", self._stand_in_cure)

    def __getitem__(self, key: Any) -> StandIn:
        self._refuse("subscripted", always=False)
        return self

    def __or__(self, other: Any) -> StandIn:
        self._refuse("combined", always=False)
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        if self._stand_in_base is None:
            name = self._stand_in_name.rsplit(".", 1)[-1].strip("()")
            object.__setattr__(self, "_stand_in_base", type(name, (), {"__slots__": ()}))
        return (self._stand_in_base,)

    def __instancecheck__(self, instance: Any) -> bool:
        return self._stand_in_base is not None and isinstance(instance, self._stand_in_base)

    def __subclasscheck__(self, subclass: type) -> bool:
        return self._stand_in_base is not None and issubclass(subclass, self._stand_in_base)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<stand-in for {self._stand_in_name}>"

    def _refuse(self, how: str, *, always: bool = True) -> None:
        if always or _SEALED:
            cure = f"; {self._stand_in_cure}" if self._stand_in_cure else ""
            raise StandInUsed(
                f"{self._stand_in_name} was {how}, but this module is not imported with the tree{cure}"
            )


def _deciding(name: str) -> Any:
    def refuse(self: StandIn, *args: Any, **kwargs: Any) -> Any:
        return self._refuse(f"used by __{name}__")

    refuse.__name__ = f"__{name}__"
    return refuse


for _name in _DECIDES:
    setattr(StandIn, f"__{_name}__", _deciding(_name))


class StandInModule(types.ModuleType):
    """A module that is not imported: every public name of it is a stand-in, but for those set on it.

    `modules`: where a name is looked up that may be a module of its own.
    """

    def __init__(self, name: str, cure: str = "", modules: Mapping[str, Any] = sys.modules) -> None:
        super().__init__(name)
        self._stand_in_cure = cure
        self._stand_in_modules = modules

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        value = self._stand_in_modules.get(full) or StandIn(full, self._stand_in_cure)
        setattr(self, name, value)
        return value
