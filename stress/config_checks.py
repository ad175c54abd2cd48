"""What the values of a configuration must hold, alone and together.

`check_config(config)` raises ConfigError with one line `PATH: what; the cure` for the first rule that is
broken; it returns the configuration with the trace file's path made absolute, so that a rank that starts in
another directory reads the same file. Nothing heavy is imported: an unknown target or release is refused
before any rank starts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from linker.faults import TransferFault, transfer_fault
from stress.arm_layout import broken_ranks
from stress.check.marks import MARKS
from stress.config_arms import broken_faults, broken_pool_only, have_no_window
from stress.config_limits import broken_limits
from stress.config_pools import less_ballast, swa_beside_ballast, swa_pages_needed
from stress.config_scheduler import broken_scheduler
from stress.config_schema import Arm, Config, ConfigError, Workload
from stress.fault_name import parse_faults
from stress.pool_groups import broken_groups
from stress.target.name import TargetError, parse_target

RELEASES = ("unpatched", "filter-per-call", "filter-per-group")
GENERATED = ("agentic", "agentic-small", "agentic-tiny")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")  # it becomes part of file names
NAME_CURE = "use up to 64 letters, digits, _ and -"


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
        yield f"name: {config.name[:80]!r} can't name a folder; {NAME_CURE}"
    yield from broken_limits(config)
    yield from _broken_layout(config)
    yield from _broken_pool(config)
    yield from _broken_workload(config.workload)
    yield from _broken_transfer_faults(config)
    check = config.check
    if check.bytes_per_token and (check.bytes_per_token % 8 or check.content_checked != "full"):
        yield (
            f"check.bytes_per_token: {check.bytes_per_token} with check.content {check.content!r} at level "
            f"{check.level}; give a multiple of 8, and check.content=full"
        )
    unknown = sorted(set(config.check.require) - set(MARKS))
    if unknown:
        near = difflib.get_close_matches(unknown[0], MARKS, n=1, cutoff=0.5)
        cure = f"did you mean {near[0]!r}?" if near else f"the marks are {', '.join(MARKS)}"
        yield f"check.require: {unknown[0]!r} is no mark; {cure}"
    if check.rules:
        yield from _broken_rules(check.rules)
    yield from _broken_arms(config)
    yield from broken_scheduler(config)


def _broken_rules(named: list[str]) -> Iterator[str]:
    from stress.check.rules import RULE_IDS

    for name in named:
        if name not in RULE_IDS:
            yield f"check.rules: {name!r} is no rule; the rules are {', '.join(RULE_IDS)}"


def _broken_layout(config: Config) -> Iterator[str]:
    layout = config.layout
    if layout.tp_size % layout.dp_size:
        divisors = [str(n) for n in range(1, layout.tp_size + 1) if layout.tp_size % n == 0]
        yield (
            f"layout.dp_size: {layout.dp_size} does not divide layout.tp_size = {layout.tp_size}, "
            f"attention TP groups would be uneven; give one of {', '.join(divisors)}"
        )


def _broken_pool(config: Config) -> Iterator[str]:
    pool, serving = config.pool, config.serving
    if serving.chunk_tokens < pool.page_size:
        # A chunk that does not end its prompt is cut to whole pages: no prompt would ever go on.
        yield (
            f"serving.chunk_tokens: {serving.chunk_tokens} is less than a page of {pool.page_size} tokens "
            f"(pool.page_size); give {pool.page_size} or more"
        )
    pages, share = swa_pages_needed(pool, serving), config.workload.ballast
    if not (pool.swa_ring or have_no_window(config)) and swa_beside_ballast(pool, share) < pages:
        yield (
            f"pool.swa_pages: {pool.swa_pages} pages can't hold one chunk of serving.chunk_tokens = "
            f"{serving.chunk_tokens}, the window of pool.window_tokens = {pool.window_tokens} and the draft "
            f"reserve; give at least {pages}{' beside the ballast' if share else ''}, or a smaller serving.chunk_tokens"
            f"{less_ballast(share)}"
        )
    yield from broken_groups(pool)


def _broken_workload(workload: Workload) -> Iterator[str]:
    first, last = workload.start_within
    if not 0 <= first <= last <= 1:
        yield f"workload.start_within: [{first}, {last}] is no range of shares; give 0 <= first <= last <= 1"
    yield from _broken_trace(workload.trace)


def _broken_trace(trace: str) -> Iterator[str]:
    kind, colon, name = trace.partition(":")
    if not trace:
        yield "workload.trace: the name is empty; name a trace file, or generated:agentic"
    elif colon and kind == "generated":
        if name not in GENERATED:
            names = ", ".join(f"generated:{known}" for known in GENERATED)
            yield f"workload.trace: no generator {trace!r}; choose {names}, or name a trace file"
    elif why := _why_no_file(trace):
        yield f"workload.trace: {trace}: {why}; name a trace file, or generated:agentic"


def _why_no_file(trace: str) -> str:
    """What keeps `trace` from being read as a file; "" for a regular file."""
    path = Path(trace)
    try:
        if path.is_file():
            return ""
        if path.is_dir():
            return "is a directory"
        if path.exists():
            return "is no regular file"
    except (OSError, ValueError) as error:  # a name that is too long, or holds a null byte
        return getattr(error, "strerror", None) or str(error)
    return "no such file" if path.is_absolute() else f"no such file under {Path.cwd()}"


def _broken_transfer_faults(config: Config) -> Iterator[str]:
    for index, given in enumerate(config.linker.faults):
        where = f"linker.faults[{index}]"
        try:
            fault = transfer_fault(**msgspec.structs.asdict(given))
        except ValueError as error:
            yield f"{where}.{error}"
            continue
        if fault.ranks is not None and max(fault.ranks) >= config.layout.tp_size:
            yield (
                f"{where}.ranks: {max(fault.ranks)}: the ranks are 0 to {config.layout.tp_size - 1} "
                "(layout.tp_size)"
            )
        if fault.kind == "lost" and not fault.delay_us and fault.direction != "offload":
            yield (
                f"{where}.delay_ms: a load that is lost for good would stop its rank; give the transport's "
                "timeout, or kind lost-offload"
            )
        yield from _broken_in_groups(config, where, fault)


def _broken_in_groups(config: Config, where: str, fault: TransferFault) -> Iterator[str]:
    """The members of an attention TP group agree on what fails on one of them, at an exchange every step."""
    size = config.layout.attn_tp_size
    if size == 1:
        return
    if fault.kind == "lost" and not fault.delay_us:
        yield (
            f"{where}.delay_ms: an attention TP group waits for all its transfers, for one that is lost for good "
            "without end; give the transport's timeout"
        )
    ranks = set(range(config.layout.tp_size) if fault.ranks is None else fault.ranks)
    groups = [set(range(first, first + size)) for first in range(0, config.layout.tp_size, size)]
    if not any(group & ranks and group - ranks for group in groups):
        return
    alike = f"on some ranks of an attention TP group of {size} alone"
    if config.layout.exchange_ms:
        yield (
            f"{where}.ranks: transfers that fail {alike} are agreed at an exchange every step; set "
            "layout.exchange_ms to 0, or name whole groups"
        )
    for name, arm in config.arms.named.items():
        if not arm.target.startswith("reference"):
            yield (
                f"{where}.ranks: {arm.target} (arms.{name}) does not agree on transfers that fail {alike}; name "
                "whole groups"
            )


def _broken_arms(config: Config) -> Iterator[str]:
    if not config.arms.named:
        yield "arms: there is none; add a table such as [arms.patched] with target and release"
    for name, arm in config.arms.named.items():
        if not NAME.match(name) or name == "mode":
            yield f"arms.{name[:80]}: can't name an arm and its files; {NAME_CURE}"
        yield from _broken_arm(config, name, arm)
    yield from broken_ranks(config)


def _broken_arm(config: Config, name: str, arm: Arm) -> Iterator[str]:
    try:
        project = parse_target(arm.target).project
    except TargetError as error:
        yield f"arms.{name}.target: {error}"
        return
    try:
        parse_faults(arm.fault)
    except ValueError as error:
        yield f"arms.{name}.fault: {error}"
        return
    yield from broken_faults(config, name, arm, project)
    yield from broken_pool_only(config, name, arm, project)
    if project != "reference":
        if project in ("sglang", "vllm") and config.pool.page_size == 1:
            what = (
                "another allocator in SGLang"
                if project == "sglang"
                else "whole with the slot of one token in vLLM"
            )
            yield f"pool.page_size: 1 is {what}, which arms.{name} is; give a page size above 1"
        # A real tree frees as it frees: `release` says nothing about it.
        if project != "sglang" and arm.tree_core is not None:
            yield _broken_core(name, arm)
        return
    if arm.release is None:
        yield f"arms.{name}.release: missing; choose {_choice(RELEASES)}"
    elif arm.release not in RELEASES:
        yield f"arms.{name}.release: unknown strategy {arm.release!r}; choose {_choice(RELEASES)}"
    if arm.tree_core is not None:
        yield _broken_core(name, arm)


def _broken_core(name: str, arm: Arm) -> str:
    target = "the reference" if arm.target == "reference" else arm.target
    return (
        f"arms.{name}.tree_core: {arm.tree_core!r} chooses a core of a real SGLang, and the target is "
        f"{target}; leave it out, or name a tree, as in sglang==0.5.23"
    )


def _choice(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
