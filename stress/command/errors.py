"""Whose an exception is: the user's to correct, or the machine's lack. Anything else is a defect of this program.

The types are imported when they are asked for: help must not wait for what it does not need.
"""

from __future__ import annotations

from stress.config import ConfigError


def user_errors() -> tuple[type[Exception], ...]:
    """What is the user's to correct: one line and exit 2."""
    from stress.record import RunDirectoryError
    from stress.target.name import TargetError
    from stress.workload.errors import TraceError, WorkloadError

    return (ConfigError, RunDirectoryError, TargetError, TraceError, WorkloadError)


def infrastructure_errors() -> tuple[type[Exception], ...]:
    """What the machine or the cluster lacks: one line and exit 3."""
    from stress.command.streams import StreamLost
    from stress.launch.contract import LaunchError
    from stress.record import RunWriteError
    from stress.target.name import TargetUnavailable

    return (LaunchError, RunWriteError, StreamLost, TargetUnavailable)
