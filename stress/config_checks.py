"""What the values of a configuration must hold, alone and together.

`check_config(config)` raises ConfigError with one line `PATH: what; the cure` for the first rule that is
broken; it returns the configuration with the trace file's path made absolute, so that a rank that starts in
another directory reads the same file. Nothing heavy is imported: an unknown target or release is refused
before any rank starts.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stress.check.marks import MARKS
from stress.config_schema import Arm, Config, ConfigError, Pool, Serving, Workload
from stress.target.name import TargetError, parse_target

RELEASES = ("unpatched", "filter-per-call", "filter-per-group")
GENERATED = ("agentic", "agentic-small")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
SEED_MAX = 2**63 - 1


def check_config(config: Config) -> Config:
    """The configuration, resolved. Raises ConfigError."""
    for broken in _broken(config):
        raise ConfigError(broken)
    if config.workload.trace.startswith("generated:"):
        return config
    workload = msgspec.structs.replace(config.workload, trace=str(Path(config.workload.trace).resolve()))
    return msgspec.structs.replace(config, workload=workload)


def _broken(config: Config) -> Iterator[str]:
    if not NAME.match(config.name):
        yield f"name: {config.name!r} can't name a folder; use letters, digits, _ and -"
    if not 0 <= config.seed <= SEED_MAX:
        yield f"seed: {config.seed} is out of range; give one of 0 to {SEED_MAX}"
    yield from _broken_layout(config)
    yield from _broken_pool(config.pool, config.serving)
    yield from _broken_workload(config.workload)
    yield from _broken_serving(config)
    if config.linker.faults:
        kind = config.linker.faults[0].kind
        yield f"linker.faults[0].kind: {kind!r} is unknown, there is no transfer fault yet; leave it out"
    yield from _at_least("linker.delay_ms", config.linker.delay_ms, 0)
    if not 0 <= config.check.level <= 3:
        yield f"check.level: {config.check.level} is no level; give 0, 1, 2 or 3"
    unknown = sorted(set(config.check.require) - set(MARKS))
    if unknown:
        near = difflib.get_close_matches(unknown[0], MARKS, n=1, cutoff=0.5)
        cure = f"did you mean {near[0]!r}?" if near else f"the marks are {', '.join(MARKS)}"
        yield f"check.require: {unknown[0]!r} is no mark; {cure}"
    yield from _broken_arms(config)


def _broken_layout(config: Config) -> Iterator[str]:
    layout = config.layout
    yield from _at_least("layout.tp_size", layout.tp_size, 1)
    yield from _at_least("layout.dp_size", layout.dp_size, 1)
    yield from _at_least("layout.exchange_ms", layout.exchange_ms, 0)
    if layout.tp_size % layout.dp_size:
        divisors = [str(n) for n in range(1, layout.tp_size + 1) if layout.tp_size % n == 0]
        yield (
            f"layout.dp_size: {layout.dp_size} does not divide tp_size = {layout.tp_size}, "
            f"attention TP groups would be uneven; give one of {', '.join(divisors)}"
        )


def _broken_pool(pool: Pool, serving: Serving) -> Iterator[str]:
    yield from _at_least("pool.page_size", pool.page_size, 1)
    yield from _at_least("pool.window_tokens", pool.window_tokens, 1)
    yield from _at_least("serving.chunk_tokens", serving.chunk_tokens, 1)
    yield from _at_least("serving.draft_tokens", serving.draft_tokens, 0)
    pages = pages_needed(pool, serving)
    pools = ["full_pages"] if pool.swa_ring else ["full_pages", "swa_pages"]
    for name in pools:
        have = getattr(pool, name)
        if have < pages:
            yield (
                f"pool.{name}: {have} pages can't hold one chunk of {serving.chunk_tokens} tokens, the "
                f"window and the draft reserve; give at least {pages}, or a smaller serving.chunk_tokens"
            )


def pages_needed(pool: Pool, serving: Serving) -> int:
    """Pages that one request takes at most at once in a pool that keeps no more than its window.

    A chunk is mapped before what slid out of the window is released, speculation reserves
    2 x draft_tokens beyond it, and both ends may lie inside a page.
    """
    tokens = serving.chunk_tokens + pool.window_tokens + 2 * serving.draft_tokens
    return -(-tokens // pool.page_size) + 1


def _broken_workload(workload: Workload) -> Iterator[str]:
    yield from _at_least("workload.requests", workload.requests, 1)
    yield from _at_least("workload.concurrency", workload.concurrency, 1)
    yield from _at_least("workload.namespaces", workload.namespaces, 1)
    yield from _at_least("workload.idle_cap_s", workload.idle_cap_s, 0)
    yield from _above_zero("workload.duration_s", workload.duration_s)
    yield from _above_zero("workload.speed", workload.speed)
    first, last = workload.start_within
    if not 0 <= first <= last <= 1:
        yield f"workload.start_within: [{first}, {last}] is no range of shares; give 0 <= first <= last <= 1"
    if not 0 <= workload.cancel_rate <= 1:
        yield f"workload.cancel_rate: {workload.cancel_rate} is no share; give 0 to 1"
    yield from _broken_trace(workload.trace)


def _broken_trace(trace: str) -> Iterator[str]:
    kind, colon, name = trace.partition(":")
    if colon and kind == "generated":
        if name not in GENERATED:
            names = ", ".join(f"generated:{known}" for known in GENERATED)
            yield f"workload.trace: no generator {trace!r}; choose {names}, or name a trace file"
    elif not Path(trace).is_file():
        what = "is a directory" if Path(trace).is_dir() else f"no such file under {Path.cwd()}"
        yield f"workload.trace: {trace}: {what}; name a trace file, or generated:agentic"


def _broken_serving(config: Config) -> Iterator[str]:
    serving = config.serving
    yield from _at_least("serving.max_running", serving.max_running, 1)
    yield from _at_least("serving.accept_mean", serving.accept_mean, 1)
    yield from _above_zero("serving.step_base_ms", serving.step_base_ms)
    yield from _above_zero("serving.prefill_tokens_per_s", serving.prefill_tokens_per_s)


def _broken_arms(config: Config) -> Iterator[str]:
    if not config.arms.named:
        yield "arms: there is none; add a table such as [arms.patched] with target and release"
    if config.arms.mode == "parallel":
        yield 'arms.mode: arms in parallel are not built yet; write mode = "sequence"'
    for name, arm in config.arms.named.items():
        if not NAME.match(name) or name == "mode":
            yield f"arms.{name}: can't name an arm and its files; use letters, digits, _ and -"
        yield from _broken_arm(name, arm)


def _broken_arm(name: str, arm: Arm) -> Iterator[str]:
    try:
        is_reference = parse_target(arm.target).kind == "reference"
    except TargetError as error:
        yield f"arms.{name}.target: {error}"
        return
    if not is_reference:
        return  # a real tree frees as it frees: `release` says nothing about it
    if arm.release is None:
        yield f"arms.{name}.release: missing; choose {_choice(RELEASES)}"
    elif arm.release not in RELEASES:
        yield f"arms.{name}.release: unknown strategy {arm.release!r}; choose {_choice(RELEASES)}"
    if arm.fault is not None:
        yield f"arms.{name}.fault: unknown fault {arm.fault!r}, no named fault exists yet; leave it out"


def _at_least(path: str, value: float, least: int) -> Iterator[str]:
    if not (math.isfinite(value) and value >= least):
        yield f"{path}: {value} is too small; give {least} or more"


def _above_zero(path: str, value: float) -> Iterator[str]:
    if not (math.isfinite(value) and value > 0):
        yield f"{path}: {value} is not a positive number; give one above 0"


def _choice(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
