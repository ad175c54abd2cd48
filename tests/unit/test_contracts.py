"""Each class has every method of the contract that it is written to, with the same parameters in the same order."""

from __future__ import annotations

import inspect

import pytest

from allocator import contract as allocator_contract
from allocator.hybrid_swa import HybridSWAAllocator
from allocator.page_pool import PagePool
from allocator.prefix_cache import PrefixCache
from allocator.release import RELEASE_STRATEGIES
from linker.agreed_linker import AgreedLinker
from linker.contract import Linker
from linker.direct import DirectLinker
from stress.engine.contract import Engine
from stress.engine.reference.engine import ReferenceEngine
from stress.engine.scheduling import SchedulingEngine
from stress.engine.vllm.driven import DrivenEngine
from stress.launch.contract import Launcher
from stress.launch.inline import InlineLauncher
from stress.launch.local import LocalLauncher

PAIRS = [
    (allocator_contract.PagePoolContract, PagePool),
    (allocator_contract.HybridContract, HybridSWAAllocator),
    (allocator_contract.PrefixCacheContract, PrefixCache),
    *((allocator_contract.ReleaseStrategy, strategy) for strategy in RELEASE_STRATEGIES.values()),
    (Linker, DirectLinker),
    (Linker, AgreedLinker),
    (Engine, ReferenceEngine),
    (SchedulingEngine, DrivenEngine),
    (Launcher, InlineLauncher),
    (Launcher, LocalLauncher),
]


def methods(contract) -> list[str]:
    """Names of the methods that a contract, or one that it extends, declares."""
    declared = [name for base in reversed(contract.__mro__[:-1]) for name in vars(base)]
    return [n for n in dict.fromkeys(declared) if not n.startswith("_") and callable(getattr(contract, n))]


def differences(contract, implementation) -> list[str]:
    found = []
    for name in methods(contract):
        method = getattr(implementation, name, None)
        if method is None:
            found.append(f"{name} is missing")
            continue
        wanted, given = (
            inspect.signature(one).parameters.values() for one in (getattr(contract, name), method)
        )
        shapes = [[(p.name, p.kind, p.default) for p in parameters] for parameters in (wanted, given)]
        if shapes[0] != shapes[1]:
            found.append(
                f"{name}{inspect.signature(method)} is not {inspect.signature(getattr(contract, name))}"
            )
    return found


@pytest.mark.parametrize(("contract", "implementation"), PAIRS, ids=lambda one: one.__name__)
def test_a_class_keeps_its_contract(contract, implementation):
    assert len(methods(contract)) >= 2
    assert differences(contract, implementation) == []


def test_control_a_missing_method_and_another_parameter_are_seen():
    class Poor:
        def enqueue(self, page_ids):
            return page_ids

    found = differences(allocator_contract.ReleaseStrategy, Poor)
    assert len(found) == 2
    assert found[0].startswith("enqueue(self, page_ids) is not")
    assert found[1] == "flush is missing"
