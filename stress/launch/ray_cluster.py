"""Which Ray cluster a run uses, and how it is entered and left. Imports no ray: the module is handed in.

A plain run starts a cluster of its own and ends it to the last process; it never joins one that happens to be there.
A driver that Ray's job runtime started joins the job's cluster, as does one that is told an address by option
or by RAY_ADDRESS. In an own cluster the workers inherit this process's environment, so they need no runtime
environment, which would keep them from being started ahead; in a joined one they get one for the whole job.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from stress.launch.contract import LaunchError
from stress.launch.ending import never_shut_down
from stress.launch.environment import ONE_THREAD, exported
from stress.launch.placement import rocm_visibility
from stress.launch.reaper import MARK, Reaper

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # the job runtime sets it, and RAY_ADDRESS, for a job's driver
OBJECT_STORE_BYTES = 128 << 20  # specs and results are kilobytes; the default takes a third of memory
QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}


def cluster_address(option: str | None, environment: Mapping[str, str]) -> str:
    """The address to give to ray.init: "local" for an own cluster, "auto" inside a job, else the one told."""
    if option is not None:
        return option
    if JOB_CONFIG in environment:
        return "auto"
    told = environment.get("RAY_ADDRESS", "")
    # An http address is that of the job API, which `ray job submit` reads too: nothing a driver can join.
    return told if told and "://" not in told else "local"


def import_path(search_path: list[str]) -> str:
    """PYTHONPATH for the actors: what this process can import beyond its installed packages."""
    installed = [
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    ours = []
    for entry in search_path:
        path = Path(entry or ".").resolve()
        if path.is_dir() and not any(path == place or place in path.parents for place in installed):
            ours.append(str(path))
    return os.pathsep.join(dict.fromkeys(ours))


def job_environment(environment: Mapping[str, str], path: str) -> dict[str, str]:
    """The environment of all workers of a joined cluster, less what the job itself has set.

    A job's own working directory is on its workers' path already, and Ray refuses a variable set twice.
    """
    job = json.loads(environment.get(JOB_CONFIG, "{}")).get("runtime_env", {})
    wanted = dict(ONE_THREAD)
    if not {"working_dir", "py_modules"} & set(job):
        wanted["PYTHONPATH"] = path
    return {name: value for name, value in wanted.items() if name not in job.get("env_vars", {})}


class Cluster:
    """The cluster that this process is in, from `enter` to `leave`."""

    def __init__(self, ray: ModuleType, option: str | None) -> None:
        """Starts an own cluster, or joins. Raises LaunchError when there is none, or none can be started."""
        self._ray = ray
        self._reaper: Reaper | None = None
        address = cluster_address(option, os.environ)
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            if address == "local":
                self._start_own()
            else:
                worker = job_environment(os.environ, import_path(sys.path))
                ray.init(address=address, runtime_env={"env_vars": worker}, **QUIET)
        except BaseException as error:
            self.leave()
            if not isinstance(error, ConnectionError | RuntimeError | ValueError | OSError):
                raise
            reason = " ".join(str(error).split())[:300]
            cure = "free some memory and disk" if address == "local" else "start it, or unset RAY_ADDRESS"
            raise LaunchError(f"ray launcher: no cluster at '{address}': {reason}; {cure}") from error
        finally:
            # Ray's own handler exits at once; a stopped job must still write what it has gathered.
            if threading.current_thread() is threading.main_thread() and callable(on_sigterm):
                signal.signal(signal.SIGTERM, on_sigterm)
        _silence(ray)

    def leave(self, *, has_head: bool = True) -> None:
        """Disconnects, and ends an own cluster to its last process. Idempotent.

        Without a head there is nothing to disconnect from: Ray would wait for it, now and at this process's end.
        """
        if has_head:
            self._ray.shutdown()
        else:
            never_shut_down("ray")
        if self._reaper is not None:
            self._reaper.close()

    def _start_own(self) -> None:
        self._reaper = Reaper()
        own = {
            **ONE_THREAD,
            **rocm_visibility(os.environ),
            "PYTHONPATH": import_path(sys.path),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            MARK: self._reaper.mark,
        }
        with exported(own):
            self._ray.init(
                address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **QUIET
            )


def _silence(ray: ModuleType) -> None:
    """Keeps Ray's news of dead workers off standard output, where a report in JSON may go.

    They are printed by the driver whatever `log_to_driver` says, and there is no public switch. The launcher
    reports every death itself.
    """
    worker = getattr(ray._private, "worker", None)
    if hasattr(worker, "_worker_logs_enabled"):
        worker._worker_logs_enabled = False
