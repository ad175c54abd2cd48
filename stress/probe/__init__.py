"""Wraps an engine's allocators by method name and turns calls into events."""

from stress.probe.probe import Probe
from stress.probe.watch import Watch, watch

__all__ = ["Probe", "Watch", "watch"]
