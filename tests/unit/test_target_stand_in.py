"""Stand-ins refuse to answer: each kind of use, before and after they are sealed."""

import math
import operator

import pytest

from stress.engine.stand_in import StandIn, StandInModule, StandInUsed, seal, unseal


@pytest.fixture
def name():
    unseal()
    yield StandIn("sglang.srt.somewhere.Name")
    unseal()


DECIDING = {
    "bool": bool,
    "not": operator.not_,
    "len": len,
    "iter": iter,
    "unpack": lambda x: [*x],
    "for": lambda x: [part for part in x],
    "next": next,
    "in": lambda x: 1 in x,
    "member": lambda x: x in [1],
    "==": lambda x: x == 1,
    "== itself": lambda x: x == StandIn("other"),
    "!=": lambda x: x != 1,
    "<": lambda x: x < 1,
    "<=": lambda x: x <= 1,
    ">": lambda x: x > 1,
    ">=": lambda x: x >= 1,
    "reversed <": lambda x: operator.lt(1, x),
    "int": int,
    "float": float,
    "complex": complex,
    "index": lambda x: [1][x],
    "range": range,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "-x": operator.neg,
    "abs": abs,
    "~": operator.invert,
    "+": lambda x: x + 1,
    "reversed +": lambda x: 1 + x,
    "-": lambda x: x - 1,
    "*": lambda x: 2 * x,
    "/": lambda x: x / 2,
    "//": lambda x: x // 2,
    "reversed //": lambda x: 2 // x,
    "%": lambda x: x % 2,
    "**": lambda x: x**2,
    "<<": lambda x: 1 << x,
    "&": lambda x: x & 1,
    "^": lambda x: x ^ 1,
    "str": str,
    "format": lambda x: f"{x}",
    "bytes": bytes,
    "open": open,
    "with": lambda x: x.__enter__(),
    "set item": lambda x: operator.setitem(x, 1, 2),
    "delete item": lambda x: operator.delitem(x, 1),
}
DEFINING = {
    "call": lambda x: x(1, 2),
    "decorate": lambda x: x(len),
    "attribute": lambda x: x.part,
    "hasattr": lambda x: hasattr(x, "part"),
    "getattr": lambda x: getattr(x, "part", None),
    "set attribute": lambda x: setattr(x, "part", 1),
    "subscript": lambda x: x[int],
    "union": lambda x: x | None,
    "reversed union": lambda x: None | x,
}


@pytest.mark.parametrize("use", DECIDING)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_nothing_is_decided_by_a_stand_in(name, use, is_sealed):
    if is_sealed:
        seal()
    with pytest.raises(StandInUsed, match=r"sglang\.srt\.somewhere\.Name"):
        DECIDING[use](name)


@pytest.mark.parametrize("use", DEFINING)
def test_a_module_body_may_define_by_it_and_nothing_after(name, use):
    DEFINING[use](name)
    seal()
    fresh = StandIn("sglang.srt.somewhere.Name")
    with pytest.raises(StandInUsed):
        DEFINING[use](fresh)


def test_a_decorated_function_is_itself(name):
    def function():
        return 1

    assert name(function) is function
    assert name.part(int) is int


def test_instances_are_those_of_derived_classes(name):
    class Derived(name, dict):
        pass

    other = StandIn("sglang.srt.somewhere.Other")
    seal()
    assert isinstance(Derived(), name)
    assert issubclass(Derived, name)
    assert not isinstance({}, name)
    assert not isinstance(Derived(), other)


def test_a_module_s_names_may_be_taken_late_but_not_used(name):
    module = StandInModule("sglang.srt.somewhere")
    seal()
    taken = module.Thing
    assert repr(taken) == "<stand-in for sglang.srt.somewhere.Thing>"
    assert module.Thing is taken
    with pytest.raises(StandInUsed):
        taken()
    with pytest.raises(AttributeError):
        module.__wrapped__  # noqa: B018
