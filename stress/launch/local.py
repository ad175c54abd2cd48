"""One process a rank on this machine: a fork server that has imported torch, and a gloo group on loopback.

A fork of that server is ready in milliseconds, where a fresh interpreter takes seconds of CPU to import
torch. It is safe because the server only imports: it starts no thread and touches no device. The server and
the ranks end when this process does, also by SIGKILL: each holds a pipe whose other end is here. A signal that
ends a job reaches the coordinator alone, also one to its process group: the server starts with them blocked,
and the ranks leave the group.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import time
import types
from collections.abc import Iterator
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess

import msgspec

from stress.launch.contract import LaunchError, RankOutcome
from stress.launch.environment import ONE_THREAD, exported
from stress.launch.local_pipe import Gone, Message, Refused, StorePort, decode, encode
from stress.result import RankSpec

PRELOAD = ["numpy", "msgspec", "torch", "torch.distributed", "stress.launch.local_rank"]
EXIT_WAIT_S = 5.0
ENDING_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class _Rank:
    """This side of one rank: its process and the pipe to it."""

    def __init__(self, spec: RankSpec, process: BaseProcess, pipe: connection.Connection) -> None:
        self.arm, self.index = spec.arm, spec.index
        self.process = process
        self.pipe = pipe
        self.ended = False


class LocalLauncher:
    """Starts ranks by fork server."""

    name = "local"

    def __init__(self, *, exchange_timeout_s: float = 120.0) -> None:
        self._exchange_timeout_s = exchange_timeout_s
        self._ranks: dict[int, _Rank] = {}
        self._store_told: set[str] = set()  # arms

    def start(self, specs: list[RankSpec], entry: str) -> None:
        self.stop()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self._store_told.clear()
        with _quiet_start():
            try:
                for spec in specs:
                    self._ranks[spec.rank] = self._start_rank(context, spec, entry)
            except (OSError, EOFError) as error:
                started = len(self._ranks)
                self.stop()
                raise LaunchError(
                    f"local launcher: {started} of {len(specs)} ranks were started, then no more "
                    f"({error}); lower layout.tp_size or raise the limits of this user"
                ) from error

    def _start_rank(self, context: multiprocessing.context.BaseContext, spec: RankSpec, entry: str) -> _Rank:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_rank_process,
            args=(theirs, msgspec.json.encode(spec), entry, self._exchange_timeout_s),
            name=f"{spec.arm}-{spec.rank}",
            daemon=True,
        )
        process.start()
        theirs.close()
        return _Rank(spec, process, ours)

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            waiting = {rank.pipe: number for number, rank in self._ranks.items() if not rank.ended}
            left_s = max(0.0, deadline_s - time.monotonic())
            ready = connection.wait(list(waiting), left_s) if waiting else []
            ended = [outcome for pipe in ready if (outcome := self._receive(waiting[pipe])) is not None]
            if ended or not ready:
                return sorted(ended, key=lambda outcome: outcome.rank)

    def stop(self) -> None:
        for rank in self._ranks.values():
            rank.pipe.close()  # the rank's listener sees the end of the pipe and exits
        deadline_s = time.monotonic() + EXIT_WAIT_S
        while self._ranks:  # one at a time: `stop` may be interrupted, and is then called again
            number, rank = next(iter(self._ranks.items()))
            rank.process.join(max(0.0, deadline_s - time.monotonic()))
            if rank.process.is_alive():
                rank.process.kill()
                rank.process.join()
            del self._ranks[number]
            rank.process.close()

    def close(self) -> None:
        self.stop()

    def pids(self) -> dict[int, int]:
        return {number: rank.process.pid for number, rank in self._ranks.items() if rank.process.pid}

    def _receive(self, number: int) -> RankOutcome | None:
        """One message of a rank that has something to say, or the end of its pipe."""
        rank = self._ranks[number]
        try:
            message = decode(rank.pipe.recv_bytes())
        except (EOFError, OSError):
            rank.process.join(EXIT_WAIT_S)
            outcome = RankOutcome(rank=number, lost=_describe_exit(rank.process.exitcode))
        else:
            if isinstance(message, Refused):
                raise LaunchError(f"local launcher: rank {number}: {message.reason}")
            if isinstance(message, StorePort):
                self._tell_store(rank.arm, message)
                return None
            outcome = message.outcome
        rank.ended = True
        if outcome.lost:
            self._tell(rank.arm, Gone(rank.index))
        if rank.index == 0:
            self._tell_store(rank.arm, StorePort(0))
        return outcome

    def _tell_store(self, arm: str, store: StorePort) -> None:
        """Passes on where the store of the arm's first rank listens, or that there will be none. Once an arm."""
        if arm not in self._store_told:
            self._store_told.add(arm)
            self._tell(arm, store)

    def _tell(self, arm: str, message: Message) -> None:
        """Tells all ranks of the arm that have not ended."""
        for rank in self._ranks.values():
            if rank.arm == arm and not rank.ended:
                with contextlib.suppress(OSError):  # a rank that has died is reported by its own pipe
                    rank.pipe.send_bytes(encode(message))


def _rank_process(pipe: connection.Connection, spec_json: bytes, entry: str, timeout_s: float) -> None:
    """The process's first function. It imports torch there, and not where this module is imported."""
    from stress.launch.local_rank import rank_process

    rank_process(pipe, spec_json, entry, timeout_s)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "its pipe was closed, its process went on"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exited with {code} before it had a result"


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """The state in which the server and the ranks are started, put back afterwards.

    * one thread a rank (ONE_THREAD);
    * the signals that end a job blocked, so that one during the server's imports ends neither it nor the ranks;
    * no __main__: multiprocessing would otherwise run the command's own script again in each rank.
    """
    resource_tracker.ensure_running()  # its start unblocks SIGINT and SIGTERM
    main = sys.modules["__main__"]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        sys.modules["__main__"] = types.ModuleType("__main__")
        with exported(ONE_THREAD):
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
