"""One rank, whoever hosts it: its generator, its files, and what becomes of an exception.

A rank is a generator that yields its payload at each exchange and is sent those of all ranks. This module
opens it by its dotted name, writes what it emits to its files, and turns its end into a RankOutcome. An exception that
escapes is trouble of the rank itself (a target's exceptions are results), so it makes the rank `lost`, with
the traceback. The file's first and last lines (`started`, `result`) are written here: the first before any
work, so that a rank that dies early has left its pid, the last with what the exchanger knows about losses.
A rank whose files cannot be written is `lost` too, at its next exchange: what it found is not on record.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from stress.evidence_file import OpenEvidence, open_evidence
from stress.launch.contract import RankOutcome
from stress.operation_file import SCHEMA, Header, OperationFile, operations_path
from stress.record import RankFile, rank_path
from stress.result import Emit, OperationBlock, RankLine, RankResult, RankSpec, ResultLine, Started, utf8_text

RankGenerator = Generator[bytes, list[bytes], RankResult]
Entry = Callable[[RankSpec, Emit], RankGenerator]


class Exchange(Protocol):
    """How a rank hears its peers. `partial` is true once one of them is lost.

    `plans_over` is the backend that the step plans travel by; "" where there is none.
    """

    partial: bool
    plans_over: str

    def exchange(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks, in rank order; b"" for a rank that is lost."""
        ...


def load_entry(dotted: str) -> Entry:
    """The function named `package.module:function`. Raises ValueError when it does not exist."""
    module_name, _, function_name = dotted.partition(":")
    try:
        return getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"entry '{dotted}': {error}; name it 'package.module:function'") from error


class RankRun:
    """One rank in progress. `outcome` is None until it has ended.

    Use `advance(None)` once, then `advance(payloads)` until it returns None; `payload` is what the rank
    has to say at the exchange where it waits.
    """

    def __init__(self, spec: RankSpec, entry: str, open_file: OpenEvidence = open_evidence) -> None:
        self.spec = spec
        self.payload = b""
        self.outcome: RankOutcome | None = None
        self._entry = entry
        self._open_file = open_file
        self._file: RankFile | None = None
        self._operations: OperationFile | None = None
        self._closed = False
        self._plans_over = ""
        self._unwritten = ""  # why a file of this rank could not be written
        self._generator: RankGenerator | None = None

    def open(self) -> None:
        """Opens the rank file, says that the rank has started, and creates its generator."""
        spec = self.spec
        try:
            if spec.run_dir is not None:
                with self._writing():
                    self._file = RankFile(rank_path(Path(spec.run_dir), spec.arm, spec.rank), self._open_file)
            target = spec.config.get("arms", {}).get(spec.arm, {}).get("target", "")
            self._write(
                Started(arm=spec.arm, rank=spec.rank, pid=os.getpid(), device=spec.device, target=target)
            )
            self._generator = load_entry(self._entry)(spec, self._emit)
        except Exception:
            self._lose(traceback.format_exc())
        else:
            self._lose_if_unwritten()

    def advance(self, payloads: list[bytes] | None, *, partial: bool = False) -> bool:
        """Runs the rank up to its next exchange. False when it has ended; `partial` marks its result."""
        if self.outcome is not None or self._generator is None:
            return False
        try:
            self.payload = next(self._generator) if payloads is None else self._generator.send(payloads)
        except StopIteration as end:
            self._finish(end.value, partial)
        except Exception:
            self._lose(traceback.format_exc())
        else:
            self._lose_if_unwritten()
        return self.outcome is None

    def follow(self, group: Exchange) -> RankOutcome:
        """Runs an opened rank to its end, exchanging over `group`."""
        heard = None
        self._plans_over = group.plans_over
        while self.advance(heard, partial=group.partial):
            heard = group.exchange(self.payload)
        if self.outcome is None:
            raise RuntimeError(f"rank {self.spec.rank} was not opened")
        return self.outcome

    def close(self) -> None:
        """Ends a rank that is still under way, and its files. Idempotent."""
        if self._generator is not None:
            self._generator.close()  # it may still hand out operations
        self._closed = True
        with self._writing():
            if self._operations is not None:
                self._operations.close()
        with self._writing():
            if self._file is not None:
                self._file.close()

    def _emit(self, line: RankLine | OperationBlock) -> None:
        if isinstance(line, OperationBlock):
            self._record(line)
        elif not isinstance(line, Started | ResultLine):  # written by this module, once each
            self._write(line)

    def _record(self, block: OperationBlock) -> None:
        """Appends to the operation file, which exists once there is something to record."""
        spec = self.spec
        if spec.run_dir is None or self._closed or self._unwritten:
            return
        with self._writing():
            if self._operations is None:
                header = Header(schema=SCHEMA, arm=spec.arm, rank=spec.rank, seed=spec.seed)
                path = operations_path(Path(spec.run_dir), spec.arm, spec.rank)
                self._operations = OperationFile(path, header, self._open_file)
            self._operations.write(block.operations)

    def _write(self, line: RankLine) -> None:
        with self._writing():
            if self._file is not None:
                self._file.write(line)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Keeps the error of a file until the rank is at its next exchange.

        Evidence is emitted from within the target's calls: an exception raised there would be taken for one
        of the target's, and a full disk is none of its faults.
        """
        try:
            yield
        except OSError as error:
            if not self._unwritten:
                self._unwritten = f"its files could not be written: {error.strerror} ({self.spec.run_dir})"

    def _lose_if_unwritten(self) -> None:
        if self._unwritten:
            self._lose(self._unwritten)

    def _finish(self, result: RankResult, partial: bool) -> None:
        if not isinstance(result, RankResult):
            self._lose(f"{self._entry} returned {type(result).__name__}, not a RankResult")
            return
        if partial:
            result = msgspec.structs.replace(result, digest_partial=True)
        if result.step_plans is not None:
            plans = msgspec.structs.replace(result.step_plans, over=self._plans_over)
            result = msgspec.structs.replace(result, step_plans=plans)
        with self._writing():
            if self._operations is not None:
                self._operations.close()
        if not self._unwritten:
            self._write(ResultLine(result=result))
        self._lose_if_unwritten()
        if self.outcome is None:
            self.outcome = RankOutcome(rank=self.spec.rank, result=result)
            self.close()

    def _lose(self, reason: str) -> None:
        self.outcome = RankOutcome(rank=self.spec.rank, lost=utf8_text(reason.strip()))
        self.close()
