"""Wraps an engine's allocators by method name and turns calls into events."""

from stress.probe.allocator_watch import Watch, watch
from stress.probe.probe import Probe

__all__ = ["Probe", "Watch", "watch"]
