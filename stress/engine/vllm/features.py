"""What a tree can do, asked of its objects and never of its version: a patched tree answers for itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Placeholder."""


def ask_features(tree: SimpleNamespace) -> Features:
    return Features()


def accepted(function: Callable[..., Any], **named: Any) -> dict[str, Any]:
    """Those of `named` that `function` takes."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in named.items() if name in parameters}
