"""The evidence of ranks whose node does not see the run directory: an actor on the driver's node writes it.

Whether a node sees it is not guessed: the launcher leaves a token there before it asks. A line is on the
driver's node before the rank goes on, like one that a rank writes itself; so a rank, or a node, that is killed
keeps all that it had said, and the coordinator follows it as it happens.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from stress.evidence_file import EvidenceFile, append_whole, open_evidence
from stress.launch.contract import LaunchError

Failure = tuple[int, str] | None
"""errno and text of an OSError, which lose both on their way through an actor's exception."""


def sees(token: str) -> bool:
    """Whether this process sees the file of that path with its own name in it."""
    try:
        return not token or Path(token).read_text() == token
    except OSError:
        return False


@contextlib.contextmanager
def token_in(run_dir: str | None) -> Iterator[str]:
    """The path of a file that is in the run directory meanwhile; "" where there is none.

    Raises LaunchError where it can't be written.
    """
    if run_dir is None:
        yield ""
        return
    path = Path(run_dir) / f".seen-{os.getpid()}-{time.time_ns()}"
    try:
        path.write_text(str(path))
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}; free some room, or choose another --out DIR") from error
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


class EvidenceWriter:
    """The actor on the driver's node. One rank writes one file; its calls come in order."""

    def __init__(self) -> None:
        self._files: dict[str, EvidenceFile] = {}

    def sees(self, token: str) -> bool:
        return sees(token)

    def open(self, path: str, new: bool) -> Failure:
        try:
            self._files[path] = open_evidence(Path(path), new)
        except OSError as error:
            return _failure(error)
        return None

    def append(self, path: str, block: bytes) -> Failure:
        try:
            append_whole(self._files[path], block)
        except OSError as error:
            return _failure(error)
        return None

    def close(self, path: str) -> None:
        self._files.pop(path).close()


def start_writer() -> ray.actor.ActorHandle:
    """The writer's actor, pinned to the node of this process, where it costs no core."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": here}
    return ray.remote(EvidenceWriter).options(**options).remote()


class SentFile:
    """The rank's side: a file that the writer has open."""

    def __init__(self, writer: ray.actor.ActorHandle, path: Path, new: bool) -> None:
        self.closed = False
        self._writer = writer
        self._path = str(path)
        _await(writer.open.remote(self._path, new))

    def write(self, block: bytes | memoryview, /) -> int:
        """Returns when the driver's node has the whole block."""
        _await(self._writer.append.remote(self._path, bytes(block)))
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            _await(self._writer.close.remote(self._path))


def _await(done: ray.ObjectRef) -> None:
    """Raises OSError for the failure that the writer met, or when the writer is gone."""
    try:
        failure = ray.get(done)
    except RayError as error:
        raise OSError(errno.EIO, "the actor that writes them on the driver's node is gone") from error
    if failure is not None:
        raise OSError(*failure)


def _failure(error: OSError) -> Failure:
    return error.errno or errno.EIO, error.strerror or str(error)
