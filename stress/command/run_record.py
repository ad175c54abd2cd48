"""The documents that a run writes about itself: at its start, when it is interrupted, at its end.

`verdict.json` is there from the start, unknown, so that whoever waits for a job can tell a run that goes on, or
was killed, from a folder without a run. At the end the verdict comes first: with a full disk the manifest's
second version, which only adds the devices, is what is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import click

from stress.command.execute import INTERRUPTED_EARLY
from stress.record import RunDirectory, RunWriteError
from stress.result import RankResult

UNDER_WAY = "The run goes on, or was killed."

Results = dict[str, list[RankResult]]
DocumentOf = Callable[[Results, str], dict[str, Any]]
"""(results by arm, why the run was ended early or "") -> the verdict document"""


class VerdictUnwritten(RunWriteError):
    """What a run has found could not be written down; `document` is what it was."""

    def __init__(self, why: str, document: dict[str, Any]) -> None:
        super().__init__(why)
        self.document = document


class RunRecord:
    """Writes the manifest and the verdict of one run."""

    def __init__(self, run: RunDirectory, manifest: dict[str, Any], document_of: DocumentOf) -> None:
        self.run = run
        self._manifest = manifest
        self._document_of = document_of

    def begin(self) -> None:
        """Before the ranks start. Raises RunWriteError."""
        self.run.write_manifest(self._manifest)
        self.run.write_verdict({**self._document_of({}, UNDER_WAY), "reasons": [UNDER_WAY]})

    def interrupt(self, results: Results) -> None:
        """At once when the user, or a job runtime with a deadline of its own, ends the run."""
        with contextlib.suppress(RunWriteError):  # `end` tries again and tells of it
            self.run.write_verdict(self._document_of(results, INTERRUPTED_EARLY))

    def end(self, results: Results, ended_early: str) -> dict[str, Any]:
        """After the last rank; returns the verdict document. Raises VerdictUnwritten."""
        document = self._document_of(results, ended_early)
        try:
            self.run.write_verdict(document)
        except RunWriteError as error:
            raise VerdictUnwritten(str(error), document) from error
        by_rank = {result.rank: result.device for ranks in results.values() for result in ranks}
        devices = [by_rank[rank] for rank in sorted(by_rank)]
        try:
            self.run.write_manifest({**self._manifest, "devices": devices or self._manifest["devices"]})
        except RunWriteError as error:
            click.echo(
                f"kvstress: {error} (the verdict is written, the manifest lacks the devices)", err=True
            )
        return document
