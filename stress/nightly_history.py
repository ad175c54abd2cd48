"""Seeds that failed before: a JSONL file that outlives a nightly's folder, one line a kept run.

A run that fails gets a line, or its line's `passes` is set back to 0. The next nightly whose matrix has the same
configuration, arms and settings runs that seed first, also where its own seeds leave it out. A kept run that
passes has its `passes` counted; at the second pass in a row the line is removed. An unknown run changes nothing.
The file is read again before each change and replaced by rename; nightlies that run at the same time need
files of their own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stress.config import ConfigError
from stress.nightly_folder import replace_file
from stress.nightly_matrix import Case

PASSES_TO_FORGET = 2
FILE_NAME = "kvstress-failed-seeds.jsonl"


class KeptSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line. `set` is as `--set` takes it, sorted; `passes` counts since the last failure."""

    schema: int = 1
    config: str
    arms: list[str]
    set: list[str]
    seed: int
    swarm: bool = False
    passes: int = 0
    failed_utc: str = ""
    reason: str = ""

    def is_of(self, case: Case) -> bool:
        """Whether it is a run of this case."""
        mine = (self.config, self.arms, self.set, self.swarm)
        return mine == (case.config, list(case.arms), sorted(case.overrides), case.swarm)


class History:
    """The kept seeds of one file. A file that is not there holds none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[KeptSeed]:
        """All lines in order, the oldest failure first. Raises ConfigError for a line that is none."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"history {self.path}: {error.strerror}; name a file with --history") from error
        kept = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                kept.append(msgspec.json.decode(line, type=KeptSeed))
            except msgspec.MsgspecError as error:
                raise ConfigError(
                    f"history {self.path}: line {number}: {error}; correct or delete that line"
                ) from None
        return kept

    def check_writable(self) -> None:
        """Makes the file where there is none, so that a wrong place is told before hours of runs."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
        except OSError as error:
            raise ConfigError(f"history {self.path}: {error.strerror}; name a file with --history") from error

    def tell(self, case: Case, seed: int, verdict: str, reason: str, now_utc: str) -> None:
        """Takes in how a run ended. Raises RunWriteError."""
        if verdict not in ("pass", "fail"):
            return
        kept = self.read()
        before = next((each for each in kept if each.is_of(case) and each.seed == seed), None)
        if verdict == "fail":
            line = KeptSeed(
                config=case.config,
                arms=list(case.arms),
                set=sorted(case.overrides),
                seed=seed,
                swarm=case.swarm,
                failed_utc=now_utc,
                reason=reason,
            )
            kept = [line if each is before else each for each in kept] + ([] if before else [line])
        elif before is None:
            return
        elif before.passes + 1 >= PASSES_TO_FORGET:
            kept = [each for each in kept if each is not before]
        else:
            passed = msgspec.structs.replace(before, passes=before.passes + 1)
            kept = [passed if each is before else each for each in kept]
        replace_file(self.path, b"".join(msgspec.json.encode(each) + b"\n" for each in kept))
